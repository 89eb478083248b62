"""The contents of a folder of artifacts: runs, states, artifacts to delete, verification."""
