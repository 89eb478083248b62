"""Kill a piece of work at a chosen point, rerun it, and compare every byte with a reference.

Every attempt is a fork of this process, which has imported everything. In the fork, os.scandir and
os.listdir list names in a given order, because file systems list them in different orders. The
operations that change a file are counted: a rename, unlink, rmdir, mkdir, link, truncate, fsync, or
an open for writing. The fork exits by itself or is killed by SIGKILL, before its n-th operation or
after a number of seconds. If the power fails as well, files lose all bytes that were not synced.
"""

import os
import select
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch

from nmtkit.utils.errors import UserError
from system.command import children, contents, run_command, run_in_fork

PATIENCE_S = 300.0  # timeout; the work takes seconds on an idle core
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Work = Callable[[Path], object]
Order = Callable[[list[str]], list[str]]

ORDERS: Mapping[str, Order] = {
    "sorted": sorted,
    "reversed": lambda names: sorted(names, reverse=True),
    # by a hash of the name, as ext4 does
    "shuffled": lambda names: sorted(names, key=lambda name: zlib.crc32(name.encode())),
}


class Target(StrEnum):
    """The processes that are sent SIGKILL."""

    COMMAND = "the command"
    CHILD = "one of its processes"
    ALL = "the command and all its processes"


@dataclass(frozen=True)
class BeforeOperation:
    """Kill before the n-th operation that changes a file."""

    number: int
    power_fails: bool = False


@dataclass(frozen=True)
class AfterSeconds:
    """Kill after a number of seconds."""

    seconds: float
    target: Target = Target.COMMAND


KillPoint = BeforeOperation | AfterSeconds


@dataclass(frozen=True)
class Result:
    """The result of an attempt.

    Attributes:
        code: Exit code, or minus the number of the signal.
        operations: Number of operations that changed a file; 0 if the attempt failed.
        killed: If it was killed at the chosen point.
        stderr: Its standard error.
    """

    code: int
    operations: int
    killed: bool
    stderr: str

    @property
    def failure(self) -> str:
        """Exit code and standard error of a failed attempt; "" if it succeeded or was killed."""
        return "" if self.killed or self.code == 0 else f"exit code {self.code}: {self.stderr}"


@dataclass(frozen=True)
class Reference:
    """A piece of work and the result of an uninterrupted run.

    Attributes:
        work: The function that is run.
        before: Folder as it was before the run.
        after: Folder as it was after the run.
        operations: Number of operations that changed a file.
        seconds: Duration of the run.
    """

    work: Work
    before: Path
    after: Path
    operations: int
    seconds: float


def run_uninterrupted(work: Work, before: Path, after: Path) -> Reference:
    """Run `work` in `after`, a copy of `before`, without a kill."""
    shutil.copytree(before, after)
    begin = time.monotonic()
    result = attempt(work, after)
    assert result.failure == ""
    return Reference(work, before, after, result.operations, time.monotonic() - begin)


def find_problem(
    reference: Reference,
    kill_points: Sequence[KillPoint],
    place: Path,
    order: str = "sorted",
    patience_s: float = PATIENCE_S,
) -> str:
    """Kill at each point in turn, rerun to the end, and compare with the uninterrupted run.

    Args:
        reference: The work and its uninterrupted run.
        kill_points: One for each attempt that is killed.
        place: Folder of the attempts, a copy of the reference's first folder.
        order: Order of names in directories, a key of ORDERS.
        patience_s: Time after which an attempt that was not killed hangs.

    Returns:
        The failure or the names of the files that differ; "" if there is no problem.
    """
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(reference.before, place)
    for kill_at in (*kill_points, None):
        failure = attempt(reference.work, place, order, kill_at, patience_s).failure
        if failure:
            return failure
    ours = contents(place)
    theirs = contents(reference.after)
    names = sorted({name for name, _ in ours.items() ^ theirs.items()})
    return f"other bytes in {', '.join(names)}" if names else ""


def command(*arguments: str) -> Work:
    """The work of running `nmtkit ARGUMENTS`."""
    return lambda _: run_command(*arguments)


def attempt(
    work: Work,
    folder: Path,
    order: str = "sorted",
    kill_at: KillPoint | None = None,
    patience_s: float = PATIENCE_S,
) -> Result:
    """Fork, run `work` in `folder`, and kill the fork at `kill_at`."""
    stderr = folder.with_name(f"{folder.name}.stderr")
    stderr.write_bytes(b"")
    # The fork writes its number of operations into this pipe.
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_and_exit(work, folder, order, kill_at, writer, stderr)
    os.close(writer)
    is_killed = False
    if isinstance(kill_at, AfterSeconds) and not _ends_within(reader, kill_at.seconds):
        is_killed = True
        _kill(pid, kill_at.target)
    hangs = not _ends_within(reader, patience_s)
    if hangs:
        _kill(pid, Target.ALL)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        count = int(pipe.read() or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if isinstance(kill_at, BeforeOperation) and code == -signal.SIGKILL:
        is_killed = True
    text = stderr.read_text(encoding="utf-8", errors="replace")
    return Result(code, count, is_killed and not hangs, f"hangs: {text}" if hangs else text)


def _ends_within(reader: int, seconds: float) -> bool:
    """Wait until the fork writes its number of operations, or exits, which closes the pipe."""
    return bool(select.select([reader], [], [], seconds)[0])


def _kill(pid: int, target: Target) -> None:
    """Send SIGKILL to the command `pid`, to its youngest child, or to all of them."""
    processes = children(pid)
    if target == Target.CHILD and processes:
        targets = processes[-1:]
    elif target == Target.ALL:
        targets = [pid, *processes]
    else:
        targets = [pid]
    for process in targets:
        with suppress(ProcessLookupError):  # it has exited by itself
            os.kill(process, signal.SIGKILL)


# In the fork


def _run_and_exit(
    work: Work, folder: Path, order: str, kill_at: KillPoint | None, writer: int, stderr: Path
) -> NoReturn:
    """Run `work`, count its operations, write their number to `writer`, and exit."""
    operations = _Operations(folder, kill_at if isinstance(kill_at, BeforeOperation) else None)

    def counted_work() -> None:
        _list_in(ORDERS[order])
        operations.watch()
        try:
            work(folder)
        except UserError as error:
            sys.exit(str(error))

    with Path(os.devnull).open("r+b") as null, stderr.open("wb") as file:
        code = run_in_fork(counted_work, folder, (null, null, file))
    if code == 0:
        os.write(writer, str(operations.count).encode())
    os._exit(code)


class _Listing(closing[Any]):
    """os.scandir's result, in another order."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        super().__init__(self)
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def close(self) -> None:
        """Close it, as scandir's iterator is closed."""


def _list_in(order: Order) -> None:
    """Replace os.scandir and os.listdir by functions that list names in `order`."""
    scandir = os.scandir
    listdir = os.listdir

    def ordered_scandir(path: Any = ".") -> _Listing:
        with scandir(path) as found:
            entries = {entry.name: entry for entry in found}
        return _Listing([entries[name] for name in order(list(entries))])

    os.scandir = ordered_scandir  # type: ignore[assignment]
    os.listdir = lambda path=".": order(listdir(path))  # type: ignore[assignment]


class _Operations:
    """Counts the operations that change a file, and kills this process before the n-th."""

    def __init__(self, folder: Path, kill_at: BeforeOperation | None) -> None:
        self.count = 0
        self._folder = os.path.realpath(folder)
        self._kill_at = kill_at
        # The number of synced bytes of every file that was written: these survive a power failure.
        self._synced: dict[str, int] = {}

    def watch(self) -> None:
        """Count operations from now on.

        Python reports most of them as audit events. Two functions are replaced because it does not
        report them: fsync, and the function of safetensors that writes a file in Rust.
        """
        fsync = os.fsync
        serialize_file = vars(safetensors.torch)["serialize_file"]

        def counted_fsync(descriptor: int) -> None:
            self._count()
            fsync(descriptor)
            with suppress(OSError):  # only Linux has /proc
                path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
                self._synced[path] = os.fstat(descriptor).st_size

        def counted_serialize_file(
            tensors: Any, path: Any, *arguments: Any, **options: Any
        ) -> None:
            self._open(os.fspath(path))
            serialize_file(tensors, path, *arguments, **options)

        os.fsync = counted_fsync  # type: ignore[assignment]
        vars(safetensors.torch)["serialize_file"] = counted_serialize_file
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event of Python."""
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            if arguments[2] & FOR_WRITING:
                self._open(arguments[0], is_emptied=bool(arguments[2] & os.O_TRUNC))
        elif event in CHANGES:
            self._count()
            if event == "os.rename":
                self._move(*map(os.path.realpath, arguments[:2]))

    def _open(self, path: str, *, is_emptied: bool = True) -> None:
        """Count the opening of a file for writing; a new or emptied file has no synced bytes."""
        path = os.path.realpath(path)
        if path.startswith(self._folder):
            self._count()
            if is_emptied or not os.path.exists(path):  # noqa: PTH110
                self._synced[path] = 0
            else:
                self._synced.setdefault(path, os.path.getsize(path))  # noqa: PTH202

    def _move(self, source: str, target: str) -> None:
        """Rename the entries of a file, or of all files in a folder."""
        for path in list(self._synced):
            if f"{path}/".startswith(f"{source}/"):
                self._synced[f"{target}{path.removeprefix(source)}"] = self._synced.pop(path)

    def _count(self) -> None:
        """Count one operation, or kill this process before it."""
        self.count += 1
        if self._kill_at is None or self.count != self._kill_at.number:
            return
        if self._kill_at.power_fails:
            for path, size in self._synced.items():
                with suppress(FileNotFoundError, IsADirectoryError):
                    if os.path.getsize(path) > size:  # noqa: PTH202
                        os.truncate(path, size)
        os.kill(os.getpid(), signal.SIGKILL)
