"""Exported models and corpora, with cards that record their origin."""
