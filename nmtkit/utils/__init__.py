"""Errors, progress, text helpers, hardware and languages, for all packages."""
