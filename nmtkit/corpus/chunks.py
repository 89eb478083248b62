"""Work on a long stream of chunks with several processes, in order and in bounded memory.

When memory is so short that a worker dies while it starts, or that a thread cannot start,
concurrent.futures and multiprocessing.Pool wait forever. Here each worker has its own pipe, which
closes when the worker ends, and the parent needs no thread.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar

from nmtkit.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Chunks being worked on, or done and waiting for an earlier one: a slow chunk delays no other.
CHUNKS_IN_FLIGHT_PER_WORKER = 2

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

    With one worker everything happens in this process. Otherwise `function` is sent to each
    worker once, so it may be an object that carries models and keeps caches. What it raises is
    raised here.

    Raises:
        UserError: a worker was killed.
    """
    assert workers >= 1
    if workers == 1:
        yield from map(function, chunks)
        return
    with _started(workers, KILLED) as idle:
        for worker in idle:
            worker.send(function)
        numbered = enumerate(chunks)
        busy: dict[Connection, tuple[int, _Worker]] = {}  # with the number of its chunk
        results: dict[int, Result] = {}  # by the chunk's number
        next_number = 0
        while True:
            room = CHUNKS_IN_FLIGHT_PER_WORKER * workers - len(busy) - len(results)
            for number, chunk in islice(numbered, min(len(idle), room)):
                worker = idle.pop()
                worker.send(chunk)
                busy[worker.connection] = number, worker
            # What is done is fetched before a result is yielded: its worker gets a new chunk first.
            done = wait(busy, 0 if next_number in results else None) if busy else []
            for connection in busy.keys() & done:
                number, worker = busy.pop(connection)
                results[number] = worker.receive()
                idle.append(worker)
            if not done:
                if next_number not in results:
                    return
                yield results.pop(next_number)
                next_number += 1


def call_apart(function: Callable[[Item], Result], item: Item, *, if_killed: str) -> Result:
    """Return `function(item)`, computed in a process of its own.

    Raises:
        UserError: the process was killed; `if_killed` is the message.
    """
    with _started(1, if_killed) as (worker,):
        worker.send(function)
        worker.send(item)
        result: Result = worker.receive()
        return result


class _Worker:
    """A process that works on one chunk at a time."""

    def __init__(self, if_killed: str) -> None:
        self._if_killed = if_killed
        # "spawn" starts clean processes: nothing of the parent's threads and locks is copied.
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # now the pipe ends when the process does

    def send(self, message: object) -> None:
        with _told_if_killed(self._if_killed):
            self.connection.send(message)

    def receive(self) -> Any:
        with _told_if_killed(self._if_killed):
            result, error = self.connection.recv()
        if error is not None:
            raise error
        return result


@contextmanager
def _started(n: int, if_killed: str) -> Iterator[list[_Worker]]:
    """Start `n` workers, and end them: after their work in good order, otherwise at once."""
    workers: list[_Worker] = []
    try:
        with _deaf_children():
            workers.extend(_Worker(if_killed) for _ in range(n))
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
    """Have the processes that are started here never see Ctrl-C, not even while Python starts.

    It reaches this process, which ends them.
    """
    ensure_running()  # which unblocks the signal when it starts a process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _told_if_killed(message: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise UserError(message) from None


def _work(connection: Connection) -> None:
    """Be a worker: receive the function, then chunk after chunk, until the parent is gone."""
    end_with_parent()
    with suppress(EOFError, ConnectionError):
        function = connection.recv()
        while True:
            connection.send(_outcome(function, connection.recv()))


def _outcome(function: Callable[[Any], Result], chunk: object) -> tuple[Result | None, Any]:
    """Return the result for a chunk, or what is to be raised in the parent."""
    try:
        return function(chunk), None
    except Exception as error:  # noqa: BLE001 - whatever it is
        error.add_note(traceback.format_exc())
        return None, error


def end_with_parent() -> None:
    """End this process when its parent ends, whatever it is doing or waiting for."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
