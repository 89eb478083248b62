"""From sentence pairs to token ids. This package does not import torch."""
