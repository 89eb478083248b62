"""What is in a folder of artifacts: its runs and states, what may be freed, what is verified."""
