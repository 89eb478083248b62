"""Ctrl-C: a command exits with 130 and one sentence, wherever it is interrupted.

Python raises KeyboardInterrupt between any two instructions of the main thread, also in a function
that a library calls. Some libraries ignore it there, and others raise an error of their own:
pydantic reports an invalid value, and an extension module that is being imported reports that it
cannot be imported. What counts is therefore that the signal came, not which exception is caught.

The artifacts of a process that exits at once are those of a process that is killed: they are
resumed.
"""

import os
import signal
import sys
from types import FrameType

TYPE_CHECKING = False  # importing that of typing takes time, and Ctrl-C would not be caught
if TYPE_CHECKING:
    from typing import NoReturn

EXIT_CODE = 130  # 128 + SIGINT
STOPPED = "stopped; to resume, rerun the same command"  # finished work is kept
# Seconds until the process exits, if KeyboardInterrupt was lost or the cleanup takes longer.
MAX_CLEANUP_S = 5
SHOW_CURSOR = "\x1b[?25h"  # a progress bar has hidden it

_was_received = False


def handle_interrupts() -> None:
    """Exit with a sentence after SIGINT, unless it is ignored (in the background of a shell)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def was_interrupted() -> bool:
    """Return whether this process has received SIGINT."""
    return _was_received


def exit_interrupted(message: str = STOPPED) -> "NoReturn":
    """Print a sentence and exit, without the end of Python, which would wait for all threads."""
    if os.isatty(2):
        message += SHOW_CURSOR
    try:
        os.write(2, f"nmtkit: {message}\n".encode())
    finally:
        os._exit(EXIT_CODE)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _was_received  # noqa: PLW0603 - a signal belongs to the whole process
    if _was_received:
        exit_interrupted()
    _was_received = True
    sys.unraisablehook = _exit_if_interrupt
    signal.signal(signal.SIGALRM, lambda *_: exit_interrupted())
    signal.alarm(MAX_CLEANUP_S)
    raise KeyboardInterrupt


def _exit_if_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Exit if Python ignores KeyboardInterrupt, as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        exit_interrupted()
    sys.__unraisablehook__(unraisable)
