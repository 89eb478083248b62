"""Kill a piece of work at a chosen moment, do it again, and compare every byte that is left.

Every attempt is a fork of this process, which has imported everything. In it, os.scandir and
os.listdir list names in a given order, since a file system may list them in any, and the operations
that change a file are counted: a rename, unlink, rmdir, mkdir, link, truncate, fsync, or an open
for writing. The fork ends by itself or by SIGKILL, before the n-th of these operations or after so
many seconds; where the power fails, files also lose all that no fsync has secured.
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
from system.command import be, children, contents, run_command

PATIENCE_S = 300.0  # what takes longer than this hangs: it takes seconds on an idle core
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


class Victim(StrEnum):
    """Which processes a SIGKILL goes to."""

    COMMAND = "the command"
    CHILD = "one of its processes"
    ALL = "the command and all its processes"


@dataclass(frozen=True)
class BeforeOperation:
    """Death before the n-th operation that changes a file."""

    number: int
    power_fails: bool = False


@dataclass(frozen=True)
class AfterSeconds:
    seconds: float
    victim: Victim = Victim.COMMAND


Death = BeforeOperation | AfterSeconds


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    code: int  # its exit code, or minus a signal
    operations: int  # that changed a file; 0 if it did not end well
    killed: bool
    said: str  # what it wrote to standard error

    @property
    def wrong(self) -> str:
        """How it failed; "" if it ended well or was killed."""
        return "" if self.killed or self.code == 0 else f"exit code {self.code}: {self.said}"


@dataclass(frozen=True)
class Whole:
    """A piece of work, and what it leaves undisturbed."""

    work: Work
    before: Path  # the folder as the work finds it
    after: Path
    operations: int  # that change a file
    seconds: float


def undisturbed(work: Work, before: Path, after: Path) -> Whole:
    shutil.copytree(before, after)
    begin = time.monotonic()
    ended = attempt(work, after)
    assert ended.wrong == ""
    return Whole(work, before, after, ended.operations, time.monotonic() - begin)


def problem(whole: Whole, deaths: Sequence[Death], place: Path, order: str = "sorted") -> str:
    """Die each death in turn in a copy of the folder, rerun, and return what is wrong, or ""."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole.before, place)
    for death in (*deaths, None):
        if wrong := attempt(whole.work, place, order, death).wrong:
            return wrong
    ours, theirs = contents(place), contents(whole.after)
    names = sorted({name for name, _ in ours.items() ^ theirs.items()})
    return f"other bytes in {', '.join(names)}" if names else ""


def command(*arguments: str) -> Work:
    return lambda _: run_command(*arguments)


def attempt(work: Work, folder: Path, order: str = "sorted", death: Death | None = None) -> Ended:
    """Fork and do `work` in `folder`."""
    said = folder.with_name(f"{folder.name}.said")
    said.write_bytes(b"")
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _fork(work, folder, order, death, telling, said)
    os.close(telling)
    is_shot = False
    if isinstance(death, AfterSeconds) and not _ends_within(told, death.seconds):
        is_shot = True
        _kill(pid, death.victim)
    if hangs := not _ends_within(told, PATIENCE_S):
        _kill(pid, Victim.ALL)
    with os.fdopen(told, encoding="utf-8") as pipe:
        count = int(pipe.read() or 0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    is_killed = is_shot or (isinstance(death, BeforeOperation) and code == -signal.SIGKILL)
    text = said.read_text(encoding="utf-8", errors="replace")
    return Ended(code, count, is_killed and not hangs, f"hangs: {text}" if hangs else text)


def _ends_within(told: int, seconds: float) -> bool:
    """Wait until the fork tells its count of operations, or ends, which closes the pipe."""
    return bool(select.select([told], [], [], seconds)[0])


def _kill(pid: int, victim: Victim) -> None:
    processes = children(pid)
    if victim == Victim.CHILD and processes:
        pids = processes[-1:]
    else:
        pids = [pid, *(processes if victim == Victim.ALL else [])]
    for each in pids:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(each, signal.SIGKILL)


# In the fork


def _fork(
    work: Work, folder: Path, order: str, death: Death | None, telling: int, said: Path
) -> NoReturn:
    operations = _Operations(folder, death if isinstance(death, BeforeOperation) else None)

    def watched() -> None:
        _list_in(ORDERS[order])
        operations.watch()
        try:
            work(folder)
        except UserError as error:
            sys.exit(str(error))

    with Path(os.devnull).open("r+b") as nothing, said.open("wb") as err:
        code = be(watched, folder, (nothing, nothing, err))
    if code == 0:
        os.write(telling, str(operations.count).encode())
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
    scandir, listdir = os.scandir, os.listdir

    def ordered_scandir(path: Any = ".") -> _Listing:
        with scandir(path) as found:
            entries = {entry.name: entry for entry in found}
        return _Listing([entries[name] for name in order(list(entries))])

    os.scandir = ordered_scandir  # type: ignore[assignment]
    os.listdir = lambda path=".": order(listdir(path))  # type: ignore[assignment]


class _Operations:
    """Counts the operations that change a file, and dies before the n-th."""

    def __init__(self, folder: Path, death: BeforeOperation | None) -> None:
        self.count = 0
        self._folder = os.path.realpath(folder)
        self._death = death
        self._secured: dict[str, int] = {}  # bytes that survive, of each file that was written

    def watch(self) -> None:
        """See what Python does by audit events; fsync has none, and safetensors is no Python."""
        fsync, serialize_file = os.fsync, vars(safetensors.torch)["serialize_file"]

        def dying_fsync(descriptor: int) -> None:
            self._tick()
            fsync(descriptor)
            with suppress(OSError):  # there is /proc on Linux alone
                path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
                self._secured[path] = os.fstat(descriptor).st_size

        def dying_serialize_file(tensors: Any, path: Any, *arguments: Any, **options: Any) -> None:
            self._open(os.fspath(path))
            serialize_file(tensors, path, *arguments, **options)

        os.fsync = dying_fsync  # type: ignore[assignment]
        vars(safetensors.torch)["serialize_file"] = dying_serialize_file
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            if arguments[2] & FOR_WRITING:
                self._open(arguments[0], is_emptied=bool(arguments[2] & os.O_TRUNC))
        elif event in CHANGES:
            self._tick()
            if event == "os.rename":
                self._move(*map(os.path.realpath, arguments[:2]))

    def _open(self, path: str, *, is_emptied: bool = True) -> None:
        path = os.path.realpath(path)
        if path.startswith(self._folder):
            self._tick()
            if is_emptied or not os.path.exists(path):  # noqa: PTH110
                self._secured[path] = 0
            else:
                self._secured.setdefault(path, os.path.getsize(path))  # noqa: PTH202

    def _move(self, source: str, target: str) -> None:
        for path in [path for path in self._secured if f"{path}/".startswith(f"{source}/")]:
            self._secured[f"{target}{path.removeprefix(source)}"] = self._secured.pop(path)

    def _tick(self) -> None:
        """Count one, unless it is the last thing that this process sees."""
        self.count += 1
        if self._death is None or self.count != self._death.number:
            return
        if self._death.power_fails:
            for path, size in self._secured.items():
                with suppress(FileNotFoundError, IsADirectoryError):
                    if os.path.getsize(path) > size:  # noqa: PTH202
                        os.truncate(path, size)
        os.kill(os.getpid(), signal.SIGKILL)
