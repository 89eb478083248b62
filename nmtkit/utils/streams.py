"""Standard output and standard error of the command line.

A pipe or a terminal may accept only a part of a text. Python then writes the rest only if the
stream has a buffer. Without one, as PYTHONUNBUFFERED requests, the rest would be lost silently.
"""

import io
import os
import select
import sys
from typing import Any

STANDARD_OUTPUT = "standard output"  # the file name in errors of writing to it


class _CompleteFile(io.FileIO):
    """A file whose `write` returns after the last byte, or raises."""

    def write(self, data: Any) -> int:
        """Write all of the data, and return its size."""
        remaining = memoryview(data).cast("B")
        n_bytes = len(remaining)
        while remaining:
            n_written = super().write(remaining)
            if n_written is None:  # a full pipe, set to non-blocking by another process
                select.select([], [self], [])
            else:
                remaining = remaining[n_written:]
        return n_bytes


class _Output(_CompleteFile):
    """Standard output. Errors name it, because the command fails with them."""

    def write(self, data: Any) -> int:
        """Write all of the data, and return its size."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


class _Messages(_CompleteFile):
    """Standard error. Work continues if nothing reads it, or its disk is full."""

    def write(self, data: Any) -> int:
        """Write the data if possible, and return its size."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_standard_streams() -> None:
    """Replace `sys.stdout` and `sys.stderr` by streams that lose nothing, and buffer nothing.

    Text has been written when `print` returns: the interpreter has nothing to write, and nothing
    can fail, when it exits.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The stream is closed. Keep the number from the next file that is opened, for reading
            # only: writing to standard output still fails.
            os.open(os.devnull, os.O_RDONLY)
    sys.stdout = _text_stream(_Output(1, "w", closefd=False))
    sys.stderr = _text_stream(_Messages(2, "w", closefd=False))


def _text_stream(file: io.FileIO) -> io.TextIOWrapper:
    # UTF-8 in any locale; bytes of a path that are not Unicode are printed as escapes.
    return io.TextIOWrapper(
        file, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
