"""How the model translates (section 6.1 of the paper)."""
