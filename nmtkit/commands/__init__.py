"""Commands that publish no artifact of a stage."""
