"""Work in a thread beside training."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


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
