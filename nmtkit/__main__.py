"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys

import nmtkit
from nmtkit.utils import interrupts


def main() -> None:
    """Run the command line."""
    interrupts.handle_interrupts()
    try:
        _run()
    except BaseException:
        if not interrupts.was_interrupted():
            raise
        interrupts.exit_interrupted()


def _run() -> None:
    """Import and run the command line."""
    try:
        nmtkit.check_system()
    except ImportError as error:
        sys.exit(f"nmtkit: {error}")
    from nmtkit.utils.hardware import let_waiting_threads_sleep
    from nmtkit.utils.streams import open_standard_streams

    let_waiting_threads_sleep()
    open_standard_streams()
    from nmtkit import cli

    cli.main()


if __name__ == "__main__":
    main()
