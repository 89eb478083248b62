"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys

import nmtkit

CTRL_C = 130  # exit code: 128 + SIGINT


def main() -> None:
    """Run the command line."""
    try:
        nmtkit.check_system()
    except ImportError as error:
        sys.exit(f"nmtkit: {error}")
    try:
        from nmtkit.utils.hardware import let_waiting_threads_sleep
        from nmtkit.utils.streams import open_standard_streams

        let_waiting_threads_sleep()
        open_standard_streams()
        from nmtkit import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(CTRL_C)


if __name__ == "__main__":
    main()
