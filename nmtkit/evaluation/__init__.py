"""BLEU, counted each way that the field counts it."""
