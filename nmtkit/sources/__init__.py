"""Bytes in, sentence pairs out. No torch."""
