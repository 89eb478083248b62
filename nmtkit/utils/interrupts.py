"""Ctrl-C: a command exits with 130 and one sentence, wherever it is interrupted.

Python raises KeyboardInterrupt between any two instructions of the main thread, also in a function
that a library calls. Some libraries ignore it there, and others raise an error of their own:
pydantic reports an invalid value, and an extension module that is being imported reports that it
cannot be imported. What counts is therefore that the signal came, not which exception is caught.

The artifacts of a process that exits at once are those of a process that is killed: they are
resumed.
"""

import atexit
import os
import signal
import sys
from types import FrameType

TYPE_CHECKING = False  # importing that of typing takes time, and Ctrl-C would not be caught
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    Result = TypeVar("Result")

# Environment variable: the id of the process of nmtkit that started this one, and watches it.
AGENT = "NMTKIT_AGENT"
EXIT_CODE = 130  # 128 + SIGINT
STOPPED = "stopped; to resume, rerun the same command"  # finished work is kept
# Seconds until the process exits, if KeyboardInterrupt was lost or the cleanup takes longer.
MAX_CLEANUP_S = 5
# Of a terminal: clear the line from its beginning, and show the cursor.
CLEAR_LINE = "\r\x1b[J"
SHOW_CURSOR = "\x1b[?25h"

_was_received = False
_has_bar = False


def handle_interrupts() -> None:
    """Exit with a sentence after SIGINT, unless it is ignored (in the background of a shell)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        # The command is finished then. Python removes its handlers some time before it exits, and
        # the signal would kill it. What is registered first, is called last.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def was_interrupted() -> bool:
    """Return whether this process has received SIGINT."""
    return _was_received


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt once more, in case a library has turned it into another error.

    Otherwise, a file would be taken for damaged, or an incomplete result for a complete one.
    """
    if _was_received:
        raise KeyboardInterrupt


def note_progress_bar() -> None:
    """Note that this process draws a progress bar: the sentence needs an empty line."""
    global _has_bar  # noqa: PLW0603 - a terminal belongs to the whole process
    _has_bar = True


def call_interruptibly(function: "Callable[[], Result]") -> "Result":
    """Call a function of a library that computes for a long time, in another thread.

    Signals interrupt the main thread only, and only when it is not in the code of a library: it
    waits for the result meanwhile.
    """
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function).result()
    finally:
        pool.shutdown(wait=False)


def exit_interrupted(message: str = "") -> "NoReturn":
    """Print a sentence and exit, without the end of Python, which would wait for all threads.

    Args:
        message: The sentence. By default it is STOPPED, unless another process of nmtkit started
            this one: that process prints it if this one has none of its own.
    """
    # A repeated signal must not print a second sentence.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    is_silent = not message and AGENT in os.environ
    line = "" if is_silent else f"nmtkit: {message or STOPPED}\n"
    if _has_bar:
        line = CLEAR_LINE + line + SHOW_CURSOR
    try:
        os.write(2, line.encode())
    finally:
        if is_silent:  # the exit code is that of a process without a handler
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        os._exit(EXIT_CODE)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    global _was_received  # noqa: PLW0603 - a signal belongs to the whole process
    if _was_received:
        exit_interrupted()
    _was_received = True
    sys.unraisablehook = _exit_if_interrupt
    sys.excepthook = lambda *_: exit_interrupted()  # in the last lines of a command
    signal.signal(signal.SIGALRM, lambda *_: exit_interrupted())
    signal.alarm(MAX_CLEANUP_S)
    raise KeyboardInterrupt


def _exit_if_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Exit if Python ignores KeyboardInterrupt, as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        exit_interrupted()
    sys.__unraisablehook__(unraisable)
