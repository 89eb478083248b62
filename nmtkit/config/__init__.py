"""Recipes and studies, the functions that load them, and the settings of the machine."""
