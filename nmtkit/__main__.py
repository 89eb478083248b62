"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C before a command begins ends without a traceback."""
    try:
        import signal

        by_python = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if by_python:  # in a callback of an import, the exception would be printed and lost
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from nmtkit import cli

        if by_python:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
