"""`python -m nmtkit`: the command line, where no script is installed."""

from nmtkit.cli import main

main()
