"""Exceptions that the command line reports without a traceback."""

from collections.abc import Callable

from nmtkit.utils.interrupts import raise_if_interrupted
from nmtkit.utils.text import visible

# Parts of the messages of libraries that ran out of memory.
MEMORY_WORDS = (
    "out of memory",  # CUDA
    "_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN and other libraries of CUDA
    "DefaultCPUAllocator",  # torch
    "std::bad_alloc",  # C++
    "ailed to allocate memory",  # MKL, in CTranslate2
    "annot allocate memory",  # the system: mmap of weights
    "failed to map segment",  # the loader of shared libraries, in imports
)

Advance = Callable[[int], None]  # reports the number of further units of work that are done


class UserError(Exception):
    """A mistake that the user can fix: one line with the problem, where it is and a remedy."""

    def __init__(self, message: str) -> None:
        """Raise with a message; control characters of untrusted text in it become visible."""
        raise_if_interrupted()
        super().__init__(visible(message))


class DivergedError(UserError):
    """A model computes values that are not numbers, because its training diverged."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """A signal stopped a command. Finished work is kept.

    Attributes:
        exit_code: The exit code of the command.
    """

    def __init__(self, message: str, *, exit_code: int) -> None:
        """Stop with a message for the user and an exit code."""
        super().__init__(message)
        self.exit_code = exit_code


class AlreadyReported(Exception):  # noqa: N818 - it has no message for the user
    """This process exits without a message, because another one has printed it.

    Attributes:
        exit_code: The exit code of this process.
    """

    def __init__(self, exit_code: int) -> None:
        """Exit with a code."""
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class RestartNeeded(Exception):  # noqa: N818 - nothing is lost
    """CUDA may not work in this process any more; a new one must train without CUDA graphs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on any device."""
    # Libraries raise RuntimeError or OSError; only the message distinguishes these from others.
    message = str(error)
    return isinstance(error, MemoryError) or any(words in message for words in MEMORY_WORDS)
