"""One attempt at a piece of work, in a process that may be killed at any moment.

Every attempt is a fork of this process, which has imported everything and computed nothing. In it,
os.scandir and os.listdir list names in a given order, since a file system may list them in any, and
the operations that change a file are counted: a rename, unlink, rmdir, mkdir, link, truncate,
fsync, or an open for writing. The fork ends by itself or by SIGKILL, before the n-th of these
operations or after so many seconds.
"""

import os
import select
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch
import torch

from nmtkit import progress
from nmtkit.errors import UserError
from nmtkit.model import weights

STDERR = 2
PATIENCE_S = 300.0  # what takes longer than this hangs: it takes seconds on an idle core
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Work = Callable[[Path], object]
Order = Callable[[list[str]], list[str]]


def _shuffled(names: list[str]) -> list[str]:
    """Order names as a hash of them does, which is what ext4 does."""
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))


ORDERS: Mapping[str, Order] = {
    "sorted": sorted,
    "reversed": lambda names: sorted(names, reverse=True),
    "shuffled": _shuffled,
}


class Victim(StrEnum):
    """Which processes a SIGKILL goes to."""

    COMMAND = "the command"
    CHILD = "one of its processes"
    ALL = "the command and all its processes"


@dataclass(frozen=True)
class BeforeOperation:
    """Death before the n-th operation that changes a file."""

    number: int

    def __str__(self) -> str:
        """Return it as the log names it."""
        return f"before operation {self.number:,}"


@dataclass(frozen=True)
class AfterSeconds:
    """Death after so many seconds."""

    seconds: float
    victim: Victim = Victim.COMMAND

    def __str__(self) -> str:
        """Return it as the log names it."""
        return f"{self.victim}, after {self.seconds:.3f} s"


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    code: int  # its exit code, or minus a signal
    operations: int  # that changed a file; 0 if it did not end well
    seconds: float
    killed: bool
    hung: bool
    said: str  # what it wrote to standard error


def attempt(
    work: Work,
    folder: Path,
    order: str = "sorted",
    death: BeforeOperation | AfterSeconds | None = None,
) -> Ended:
    """Fork and do `work` in `folder`."""
    begin = time.monotonic()
    said = folder.with_name(f"{folder.name}.said")
    said.unlink(missing_ok=True)
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _fork(work, folder, order, death, telling, said)
    os.close(telling)
    is_shot = isinstance(death, AfterSeconds) and not _ends_within(told, death.seconds)
    if is_shot and isinstance(death, AfterSeconds):
        _kill(pid, death.victim)
    if hung := not _ends_within(told, PATIENCE_S):
        _kill(pid, Victim.ALL)
    with os.fdopen(told, encoding="utf-8") as pipe:
        count = int(pipe.read() or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(
        code,
        count,
        time.monotonic() - begin,
        killed=is_shot or (isinstance(death, BeforeOperation) and code == -signal.SIGKILL),
        hung=hung,
        said=said.read_text(encoding="utf-8", errors="replace") if said.exists() else "",
    )


def _ends_within(told: int, seconds: float) -> bool:
    """Wait until the fork tells its count of operations, or ends, which closes the pipe."""
    return bool(select.select([told], [], [], seconds)[0])


def _kill(pid: int, victim: Victim) -> None:
    children = _children(pid)
    if victim == Victim.CHILD and children:
        pids = children[-1:]
    else:
        pids = [pid, *(children if victim == Victim.ALL else [])]
    for each in pids:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(each, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """Return the processes that a process started, oldest first; none but on Linux."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except OSError:
        return []
    return sorted(int(child) for child in listed.split())


# In the fork


def _fork(
    work: Work,
    folder: Path,
    order: str,
    death: BeforeOperation | AfterSeconds | None,
    telling: int,
    said: Path,
) -> NoReturn:
    operations = _Operations(folder, death.number if isinstance(death, BeforeOperation) else None)
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT, 0o666), STDERR)
        os.chdir(folder)
        progress.console.quiet = True
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that this one starts
        _list_in(ORDERS[order])
        operations.watch()
        work(folder)
        os.write(telling, str(operations.count).encode())
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - nothing may leave the fork
        said_last = str(error) if isinstance(error, UserError) else traceback.format_exc()
        os.write(STDERR, f"{said_last.rstrip()}\n".encode())
        os._exit(1)


class _Listing:
    """os.scandir's result, in another order."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> "_Listing":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def close(self) -> None:
        """Close it, as scandir's iterator is closed."""


def _list_in(order: Order) -> None:
    """Let every folder be listed in that order."""
    scandir, listdir = os.scandir, os.listdir

    def ordered_scandir(path: Any = ".") -> _Listing:
        with scandir(path) as found:
            entries = {entry.name: entry for entry in found}
        return _Listing([entries[name] for name in order(list(entries))])

    os.scandir = ordered_scandir  # type: ignore[assignment]
    os.listdir = lambda path=".": order(listdir(path))  # type: ignore[assignment]


class _Operations:
    """Counts the operations that change a file, and dies before the n-th."""

    def __init__(self, folder: Path, die_at: int | None) -> None:
        self.count = 0
        self._folder = str(folder)
        self._die_at = die_at

    def tick(self) -> None:
        """Count one, unless it is the last thing that this process sees."""
        self.count += 1
        if self.count == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """See what Python does by audit events; fsync has none, and safetensors is no Python."""
        fsync, save_file = os.fsync, safetensors.torch.save_file

        def dying_fsync(descriptor: int) -> None:
            self.tick()
            fsync(descriptor)

        def dying_save_file(*arguments: Any, **options: Any) -> None:
            self.tick()
            save_file(*arguments, **options)

        os.fsync = dying_fsync  # type: ignore[assignment]
        for module in (safetensors.torch, weights):
            if hasattr(module, "save_file"):
                vars(module)["save_file"] = dying_save_file
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES:
            self.tick()
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & FOR_WRITING:
            path = os.path.abspath(arguments[0]) if isinstance(arguments[0], str) else ""  # noqa: PTH100
            if path.startswith(self._folder):
                self.tick()
