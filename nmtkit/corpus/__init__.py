"""Text in, token ids out; no torch."""
