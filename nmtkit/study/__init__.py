"""Studies: their runs, the figures of these runs, and the table of a study."""
