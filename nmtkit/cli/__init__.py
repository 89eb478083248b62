"""The command line: one module per command.

`app.py` lists the commands, and reports how they end. `options.py` declares the options that
several of them share. `inputs.py` checks the values of options, and finds the recipe or the bundles
that they name.
"""
