"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends without a traceback."""
    try:
        from nmtkit import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
