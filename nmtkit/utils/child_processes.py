"""Child processes that run Python with the import path of this process.

Python puts the working directory in front of its modules for `-m` and `-c`: a `random.py`
or an older copy of nmtkit there would run instead of the installed code.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAFE_PATH = "PYTHONSAFEPATH"  # environment variable; `python -P` does the same


def nmtkit_command(*arguments: str) -> list[str]:
    """Return the command line that runs `nmtkit ARGUMENTS` in a child process."""
    # `python -m nmtkit` in a clone that is not installed finds nmtkit only in this directory.
    safe_path = [] if str(Path.cwd()) in sys.path else ["-P"]
    return [sys.executable, *safe_path, "-m", "nmtkit", *arguments]


@contextmanager
def safe_spawning() -> Iterator[None]:
    """Let multiprocessing start its children without the working directory.

    They receive the import path of this process, but import multiprocessing itself before that.
    """
    previous = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = previous
