"""BLEU in its different variants."""
