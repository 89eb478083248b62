"""Work on a long stream of pairs with several processes, in order and in bounded memory."""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from nmtkit.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Two chunks a worker keep it busy while the parent writes what came back.
CHUNKS_IN_FLIGHT_PER_WORKER = 2


def read_chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_chunks(
    function: Callable[[Item], Result], chunks: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """Yield `function(chunk)` for every chunk, in order; the same for any number of workers.

    With one worker everything happens in this process. Otherwise `function` is sent to each
    worker once, so it may be an object that carries models and keeps caches. What it raises is
    raised here.

    Raises: UserError when a worker is killed.
    """
    assert workers >= 1
    if workers == 1:
        yield from map(function, chunks)
        return
    # "spawn" starts clean processes: nothing of the parent's threads and locks is copied.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (function,))
    in_flight: deque[Future[Result]] = deque()
    try:
        for chunk in chunks:
            in_flight.append(pool.submit(_run, chunk))
            if len(in_flight) == CHUNKS_IN_FLIGHT_PER_WORKER * workers:
                yield in_flight.popleft().result()
        while in_flight:
            yield in_flight.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            f"one of {workers} worker processes was killed, perhaps for want of memory; "
            f"run again with fewer --workers"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_function: Callable[[Any], Any]  # a worker process's own


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _function  # noqa: PLW0603 - the pool offers a worker no other place to keep it
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the pool
    end_with_parent()


def end_with_parent() -> None:
    """Let this process, a worker of a pool, end when its parent does.

    Waiting for work it would never notice that the parent was killed.
    """
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(chunk: Any) -> Any:
    return _function(chunk)
