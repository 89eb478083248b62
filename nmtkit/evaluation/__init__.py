"""Scores of translations: BLEU in its variants, chrF, TER, bracket F1, and significance."""
