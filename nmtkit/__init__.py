"""nmtkit: the experiments of "Attention Is All You Need", from raw text to the numbers in its tables."""

__version__ = "0.1.0"
