"""Statistics of corpora, attention heads, and differences between systems."""
