"""Recipes and studies, how they are loaded, and the settings of the machine."""
