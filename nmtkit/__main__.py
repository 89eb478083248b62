"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import sys

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


if __name__ == "__main__":
    main()
