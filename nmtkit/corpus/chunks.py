"""Work on a long stream of chunks with several processes, in order and in bounded memory.

When memory is so short that a worker dies while it starts, or that a thread cannot start,
concurrent.futures and multiprocessing.Pool wait forever. Here each worker has its own pipe, which
closes when the worker ends, and the parent needs no thread.
"""

import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar

from nmtkit.utils.child_processes import safe_spawning
from nmtkit.utils.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE_S = 5.0  # with workers that have nothing left to do

KILLED = "a worker process was killed, perhaps for lack of memory; run again with fewer --workers"


def read_chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_chunks(
    function: Callable[[Item], Result], chunks: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """Yield `function(chunk)` for every chunk, in order; the same for any number of workers.

    With one worker everything happens in this process. Otherwise each has one chunk at a time, and
    `function` is sent to it once, so it may carry models and keep caches. Errors are raised here.
    """
    if workers == 1:
        yield from map(function, chunks)
        return
    with _started(workers, function, KILLED) as idle:
        busy: deque[_Worker] = deque()
        for chunk in chunks:
            done = [] if idle else [busy[0].receive()]
            worker = idle.pop() if idle else busy.popleft()
            worker.send(chunk)
            busy.append(worker)
            yield from done
        for worker in busy:
            yield worker.receive()


def call_apart(function: Callable[[Item], Result], item: Item, *, if_killed: str) -> Result:
    """Return `function(item)`, computed in a process of its own."""
    with _started(1, function, if_killed) as (worker,):
        worker.send(item)
        result: Result = worker.receive()
        return result


class _Worker:
    def __init__(self, if_killed: str) -> None:
        self._if_killed = if_killed
        # "spawn" starts clean processes: nothing of the parent's threads and locks is copied.
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # now the pipe ends when the process does

    def send(self, message: object) -> None:
        try:
            self.connection.send(message)
        except OSError:
            raise UserError(self._if_killed) from None

    def receive(self) -> Any:
        try:
            result, error = self.connection.recv()
        except (EOFError, OSError):
            raise UserError(self._if_killed) from None
        if error is not None:
            raise error
        return result


@contextmanager
def _started(n: int, function: object, if_killed: str) -> Iterator[list[_Worker]]:
    """Start `n` workers; end them in good order after their work, and at once after an error."""
    workers: list[_Worker] = []
    try:
        with safe_spawning(), _deaf_children():
            workers.extend(_Worker(if_killed) for _ in range(n))
        for worker in workers:
            worker.send(function)
        yield [*workers]
        for worker in workers:
            worker.connection.close()  # it ends, and frees what outlives a killed process
        for worker in workers:
            worker.process.join(PATIENCE_S)
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Start processes with SIGINT blocked: Ctrl-C reaches this process, which ends them."""
    ensure_running()  # which unblocks the signal when it starts a process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection) -> None:
    """Be a worker: receive the function, then chunk after chunk, until the parent is gone."""
    with suppress(EOFError, ConnectionError):
        function = connection.recv()
        while True:
            chunk = connection.recv()
            try:
                outcome: tuple[Any, Exception | None] = function(chunk), None
            except Exception as error:  # noqa: BLE001 - whatever it is
                error.add_note(traceback.format_exc())
                outcome = None, error
            connection.send(outcome)
