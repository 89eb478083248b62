"""The Transformer (section 3 of the paper); tensors only."""
