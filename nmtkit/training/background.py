"""Work in a thread beside training: packing the next updates, writing a checkpoint."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


class Background:
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
def background() -> Iterator[Background]:
    """Provide a thread, and wait for its work at the end, also after an error."""
    with ThreadPoolExecutor(1, thread_name_prefix="background") as pool:
        thread = Background(pool)
        yield thread
        thread.wait()


def ahead(items: Iterable[Item], make: Callable[[Item], Made], n_ahead: int = 2) -> Iterator[Made]:
    """Yield `make(item)` for each item in order, computed in a thread `n_ahead` items early."""
    coming: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        for item in items:
            coming.append(pool.submit(make, item))
            if len(coming) > n_ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
