"""How the model is computed fast; each function is held equal to `nmtkit.model` by a test."""
