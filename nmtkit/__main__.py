"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C before a command begins ends without a traceback."""
    try:
        from nmtkit import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
