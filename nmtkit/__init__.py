"""nmtkit: the experiments of "Attention Is All You Need", from raw text to its tables."""

__version__ = "0.1.0"
