"""Errors, progress, text helpers, languages: what every package may use."""
