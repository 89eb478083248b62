"""What is shown to the user without a traceback."""

import json
from collections.abc import Callable, Mapping

from nmtkit.utils.text import visible

# Parts of messages of libraries whose memory ran out.
MEMORY_WORDS = (
    "out of memory",  # CUDA
    "DefaultCPUAllocator",  # torch
    "std::bad_alloc",  # C++
    "ailed to allocate memory",  # MKL, in CTranslate2
    "annot allocate memory",  # the system: mmap of weights
    "failed to map segment",  # the loader of shared libraries, in imports
)

Log = Callable[[str], None]  # shows a sentence
Advance = Callable[[int], None]  # counts more units of work as done


class UserError(Exception):
    """A mistake that the user can fix, in one line: what is wrong, where, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class DivergedError(UserError):
    """A model computes what is not a number, since its training diverged."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """A signal stopped work that can be resumed."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class AlreadyReported(Exception):  # noqa: N818 - says nothing of its own
    """This process exits without a message, because another one has printed it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class RestartNeeded(Exception):  # noqa: N818 - nothing is lost
    """CUDA may not work any more in this process, which must start again without CUDA graphs."""


def shown(value: object) -> str:
    """Return an untrusted value as a message shows it: on one line, and shortened."""
    return shortened(repr(value))


def shortened(text: str, max_length: int = 60) -> str:
    """Return `text` on one line, or if it is longer its beginning and three dots."""
    text = visible(text)
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def shown_differences(
    ours: Mapping[str, object], theirs: Mapping[str, object]
) -> tuple[str, str] | None:
    """Return how each of two mappings differs from the other, such as ("d_k = 2", "d_k = 4")."""
    keys = [key for key in ours if ours[key] != theirs[key]]
    one, other = (
        ", ".join(f"{key} = {shortened(json.dumps(side[key]))}" for key in keys)
        for side in (ours, theirs)
    )
    return (one, other) if keys else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` means that memory ran out, on any device."""
    message = str(error)
    return isinstance(error, MemoryError) or any(words in message for words in MEMORY_WORDS)
