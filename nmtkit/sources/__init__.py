"""From bytes to sentence pairs. This package does not import torch."""
