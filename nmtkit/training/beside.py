"""Work that goes on in a thread while training continues: publishing a checkpoint."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager


class Beside:
    """A thread that does one piece of work at a time."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._running: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start `work`; that before it must have ended (`wait`)."""
        assert self._running is None
        self._running = self._pool.submit(work)

    def check(self) -> None:
        """Raise what the work raised, if it has ended."""
        if self._running is not None and self._running.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the work has ended, and raise what it raised."""
        if self._running is not None:
            running, self._running = self._running, None
            running.result()


@contextmanager
def beside() -> Iterator[Beside]:
    """Provide a thread, and wait for its work at the end, also after an error."""
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as pool:
        thread = Beside(pool)
        yield thread
        thread.wait()
