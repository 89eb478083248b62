"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys

CTRL_C = 130  # exit code: 128 + SIGINT


def main() -> None:
    """Run the command line."""
    try:
        from nmtkit.utils.hardware import check_system, let_waiting_threads_sleep
        from nmtkit.utils.streams import open_standard_streams

        try:
            check_system()
        except ImportError as error:
            sys.exit(f"nmtkit: {error}")
        let_waiting_threads_sleep()
        open_standard_streams()
        from nmtkit.cli import app

        app.main()
    except KeyboardInterrupt:  # also while Python imports these modules
        sys.exit(CTRL_C)


if __name__ == "__main__":
    main()
