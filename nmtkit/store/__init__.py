"""Files that are complete or absent, locks, artifacts and their provenance."""
