"""Sentence pairs in, token ids out. No torch."""
