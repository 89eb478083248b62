"""How the model is trained (section 5 of the paper)."""
