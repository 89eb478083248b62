"""Several worker processes give the same results as one process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.utils.errors import UserError


class Doubler:
    """Doubles numbers, and counts its calls in a worker."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, chunk: list[int]) -> tuple[list[int], int]:
        self.n_calls += 1
        time.sleep(0.02 * (chunk[0] % 3))  # later chunks may be finished before earlier ones
        return [2 * number for number in chunk], self.n_calls


def process_id(_: int) -> int:
    return os.getpid()


def fail_at_three(number: int) -> int:
    if number == 3:
        raise UserError("three is not a number")
    return number


def kill_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_order(workers: int) -> None:
    results = list(map_chunks(Doubler(), read_chunks(range(20), 3), workers=workers))
    assert [number for result, _ in results for number in result] == list(range(0, 40, 2))
    assert max(n_calls for _, n_calls in results) > 1  # a worker keeps the function


@pytest.mark.parametrize("workers", [1, 2])
def test_error_in_worker_is_raised(workers: int) -> None:
    with pytest.raises(UserError, match="three is not a number"):
        list(map_chunks(fail_at_three, range(6), workers=workers))


def test_killed_worker_is_an_error() -> None:
    with pytest.raises(UserError, match="a worker process was killed"):
        list(map_chunks(kill_at_three, range(50), workers=2))


class ExitAtStart:
    """Ends the worker that it is sent to, before its last byte is read."""

    def __init__(self) -> None:
        self.first = Exit()
        self.rest = bytes(2**20)

    def __call__(self, number: int) -> int:
        return number


class Exit:
    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (3,)


def test_exit_at_start_is_an_error() -> None:
    code = (
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_chunks import ExitAtStart, map_chunks\n"
        "list(map_chunks(ExitAtStart(), range(9), workers=2))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, timeout=60
    )
    assert b"UserError: a worker process was killed" in ended.stderr


PARENT = """
import os, sys, time
sys.path.insert(0, {folder!r})
from test_chunks import process_id
from nmtkit.corpus.chunks import map_chunks

if __name__ == "__main__":
    for pid in map_chunks(process_id, iter(int, 1), workers=2):
        print(pid, flush=True)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(folder=str(Path(__file__).parent)), encoding="utf-8")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        workers = {int(parent.stdout.readline()) for _ in range(20)}
        parent.send_signal(number)
        parent.stdout.read()
        assert parent.wait(timeout=10) != 0
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker is still running"
        time.sleep(0.05)


INTERRUPTED = """
import os, signal
from collections.abc import Iterator
from nmtkit.corpus.chunks import map_chunks

def numbers() -> Iterator[int]:
    os.killpg(0, signal.SIGINT)  # as a terminal does, while the workers are starting
    yield -7

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)
    print(list(map_chunks(abs, numbers(), workers=2)))
"""


LOCKING = """
import multiprocessing
from nmtkit.corpus.chunks import call_in_process

kept = []

def lock(number: int) -> int:
    kept.append(multiprocessing.Lock())  # as torch's compiler does
    return number

if __name__ == "__main__":
    print(call_in_process(lock, 7, if_killed="it was killed"))
"""


@pytest.mark.parametrize(
    ("code", "prints"), [(LOCKING, "7\n"), (INTERRUPTED, "[7]\n")], ids=["locks", "Ctrl-C"]
)
def test_workers_print_nothing(tmp_path: Path, code: str, prints: str) -> None:
    """Also about the semaphore of a killed process, and about Ctrl-C at their start."""
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8", newline="\n")
    ended = subprocess.run(
        [sys.executable, script], check=False, capture_output=True, text=True,
        start_new_session=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, prints, "")
