"""Measured speeds, the self-test and estimates of time and cost."""
