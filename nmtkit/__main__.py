"""The command line, as the script `nmtkit` and as `python -m nmtkit`."""

import signal
import sys
from types import FrameType

import nmtkit


def main() -> None:
    """Run the command line; Ctrl-C while modules are imported ends it at once, in silence."""
    try:
        nmtkit.check_system()
    except ImportError as error:
        sys.exit(f"nmtkit: {error}")
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        from nmtkit.utils.streams import open_standard_streams

        open_standard_streams()
        from nmtkit import cli

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not in an import, which may lose it, or abort in C++."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
