"""Work on a long stream of chunks with several processes, in order and in bounded memory.

If a worker is killed while it starts, or a thread cannot start because memory is short,
concurrent.futures and multiprocessing.Pool wait forever. Here every worker has a pipe of its own,
which closes when the worker exits, and the parent process needs no thread.
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

from nmtkit.utils.errors import UserError
from nmtkit.utils.processes import safe_spawning

Item = TypeVar("Item")
Result = TypeVar("Result")

EXIT_TIMEOUT_S = 5.0  # of a worker without work

KILLED = "a worker process was killed, possibly for lack of memory; lower --workers"


def read_chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_chunks(
    function: Callable[[Item], Result], chunks: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """Yield `function(chunk)` for all chunks, in order.

    A worker has one chunk at a time: memory is bounded. Exceptions of `function` are raised
    here.

    Args:
        function: The work on a chunk. It is sent to each worker once, and may hold models
            and keep caches.
        chunks: The chunks. They are read as workers become idle.
        workers: Number of processes. With one, all work is done in this process.

    Raises:
        UserError: A worker was killed.
    """
    if workers == 1:
        yield from map(function, chunks)
        return
    with _started(workers, function, KILLED) as idle:
        busy: deque[_Worker] = deque()
        for chunk in chunks:
            # The first chunks fill the workers; these stay busy in the order of their chunks.
            if idle:
                worker = idle.pop()
                worker.send(chunk)
                busy.append(worker)
                continue
            # The next chunk is sent before the result is used: the worker does not wait.
            worker = busy.popleft()
            result = worker.receive()
            worker.send(chunk)
            busy.append(worker)
            yield result
        for worker in busy:
            yield worker.receive()


def call_in_process(function: Callable[[Item], Result], item: Item, *, if_killed: str) -> Result:
    """Return `function(item)`, computed in a process of its own.

    Args:
        function: Is pickled and sent to the process.
        if_killed: Message of the UserError that is raised if the process is killed.
    """
    with _started(1, function, if_killed) as (worker,):
        worker.send(item)
        result: Result = worker.receive()
        return result


class _Worker:
    """A process that calls a function on items, seen from its parent."""

    def __init__(self, if_killed: str) -> None:
        """Start the process.

        Args:
            if_killed: Message of the UserError that is raised once the process was killed.
        """
        self._if_killed = if_killed
        # "spawn" starts clean processes: no thread or lock of the parent is copied.
        context = get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=_work, args=(other_end,), daemon=True)
        self.process.start()
        other_end.close()  # now the pipe closes when the process exits

    def send(self, message: object) -> None:
        """Send the function, or an item."""
        try:
            self.connection.send(message)
        except OSError:
            raise UserError(self._if_killed) from None

    def receive(self) -> Any:
        """Return the result of the item sent last, or raise the exception of the function."""
        try:
            result, error = self.connection.recv()
        except (EOFError, OSError):
            raise UserError(self._if_killed) from None
        if error is not None:
            raise error
        return result


@contextmanager
def _started(n: int, function: object, if_killed: str) -> Iterator[list[_Worker]]:
    """Start `n` workers; they exit after their work, and are killed after an exception.

    Args:
        n: Number of workers.
        if_killed: Message of the UserError that is raised once a worker was killed.
    """
    workers: list[_Worker] = []
    try:
        with safe_spawning(), _interrupts_blocked():
            for _ in range(n):
                workers.append(_Worker(if_killed))
        for worker in workers:
            worker.send(function)
        yield list(workers)
        for worker in workers:
            # The process exits, and frees resources that would outlive a killed one.
            worker.connection.close()
        for worker in workers:
            worker.process.join(EXIT_TIMEOUT_S)
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in processes that are started: Ctrl-C reaches this one, and it stops them."""
    ensure_running()  # it would unblock the signal when it starts a process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection) -> None:
    """Run a worker: receive the function, then items, until the parent closes the pipe."""
    with suppress(EOFError, ConnectionError):
        function = connection.recv()
        while True:
            item = connection.recv()
            result = None
            exception = None
            try:
                result = function(item)
            except Exception as error:  # noqa: BLE001 - it is raised in the parent
                error.add_note(traceback.format_exc())
                exception = error
            connection.send((result, exception))
