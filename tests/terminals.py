"""Programs on a terminal."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

MAX_SILENCE_S = 60
REACTION_S = 0.3


class Terminal:
    """The user's end of a terminal."""

    def __init__(self, descriptor: int) -> None:
        """Read and write the user's end of a terminal."""
        self._descriptor = descriptor

    def read(self, until: str | None = None) -> str:
        """Return what is printed, up to a text or, without one, to the end of the program."""
        printed = b""
        while until is None or until.encode() not in printed:
            if not select.select([self._descriptor], [], [], MAX_SILENCE_S)[0]:
                raise TimeoutError(f"the program waits after {printed.decode()!r}")
            try:
                block = os.read(self._descriptor, 2**16)
            except OSError:  # the program has closed its end
                break
            if not block:
                break
            printed += block
        return printed.decode()

    def type(self, keys: str) -> None:
        """Press keys, such as Ctrl-C, which sends a signal to the program.

        A user takes longer to press a key than a program to wait for one after its question. Python
        does not see a signal between the two.
        """
        time.sleep(REACTION_S)
        os.write(self._descriptor, keys.encode())


@contextmanager
def on_terminal(
    command: Sequence[str], folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """Run a program on a terminal of 80 columns."""
    descriptor, its_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        preexec_fn=partial(os.login_tty, its_end),  # noqa: PLW1509 - there are no other threads
    ) as process:
        os.close(its_end)
        try:
            yield process, Terminal(descriptor)
        finally:
            os.close(descriptor)  # which ends a program that waits
