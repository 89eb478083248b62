"""Files and folders: complete or absent, and locked while they are written."""

import errno
import fcntl
import io
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, redirect_stderr, suppress
from math import inf
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

import pytest
from pydantic import BaseModel
from system.command import contents
from system.kills import BeforeOperation, attempt

from nmtkit.store.files import (
    draft_next_to,
    reopen,
    replaced_file,
    temporary_folder,
    whole_file,
    whole_folder,
    write_whole,
)
from nmtkit.store.locks import BusyError, find_holder, locked
from nmtkit.store.records import DamagedError, read_sealed, sealed, write_json
from nmtkit.utils.errors import UserError


@pytest.mark.parametrize("power_fails", [False, True])
def test_kill_leaves_old_or_new_file(tmp_path: Path, power_fails: bool) -> None:
    def write(folder: Path) -> None:
        write_whole(folder / "note.json", "new")

    for number in range(1, 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_whole(folder / "note.json", "old")
        is_killed = attempt(write, folder, "sorted", BeforeOperation(number, power_fails)).killed
        assert (folder / "note.json").read_text(encoding="utf-8") in ("old", "new")
        if not is_killed:
            break
        write(folder)
        assert [path.read_bytes() for path in folder.iterdir()] == [b"new"]
    assert number > 3


def test_reopen_keeps_only_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    with reopen(path, 0) as file:
        file.write(b"committed, lost")
    with reopen(path, len(b"committed")) as file:
        assert path.read_bytes() == b"committed"
        file.write(b"!")
    assert path.read_bytes() == b"committed!"
    with pytest.raises(AssertionError, match="shorter than 99 bytes"):
        reopen(path, 99)


# Outputs that the user names


def test_finished_draft_replaces_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    link = tmp_path / "link"
    link.symlink_to("file")
    for place, text in ((file, "first"), (link, "second")):
        with whole_file(place) as draft:
            draft.write_text(text, encoding="utf-8")
    assert link.is_symlink()
    with suppress(RuntimeError), whole_file(file) as draft:
        draft.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert file.read_text(encoding="utf-8") == "second"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_device_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with whole_file(pipe) as draft:
        assert draft == pipe
    assert pipe.is_fifo()


def write_file(place: Path) -> None:
    with whole_file(place) as draft:
        draft.write_bytes(b"whole")


def write_folder(place: Path) -> None:
    with whole_folder(place) as draft:
        for name in ("deep/one", "two"):
            (draft / name).parent.mkdir(exist_ok=True)
            (draft / name).write_bytes(b"whole")


def test_open_or_read_only_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier run\n", encoding="utf-8")
    log = (tmp_path / "log").open("a", encoding="utf-8")
    with log, pytest.raises(UserError, match="cannot be replaced"):
        replaced_file(Path(f"/dev/fd/{log.fileno()}"))
    assert replaced_file(tmp_path / "log") == tmp_path / "log"
    (tmp_path / "log").chmod(0o444)
    with pytest.raises(UserError, match="read-only"), whole_file(tmp_path / "log"):
        pass


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_output_is_written_after_kills(write: Callable[[Path], None], tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        write(folder / "out")

    (tmp_path / "uninterrupted").mkdir()
    n_operations = attempt(work, tmp_path / "uninterrupted").operations
    assert n_operations > 6
    for number in range(1, n_operations + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert attempt(work, folder, kill_at=BeforeOperation(number)).killed
        second = 0
        while not (folder / "out").exists():
            second += 2  # the rerun, which deletes the draft, is killed too, later every time
            result = attempt(work, folder, kill_at=BeforeOperation(second))
            assert result.failure == ""
        attempt(work, folder)  # a folder is refused, and the rest of its draft is deleted
        assert [path.name for path in folder.iterdir()] == ["out"]
        assert contents(folder) == contents(tmp_path / "uninterrupted")


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_output_has_one_writer(
    whole: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    place = tmp_path / "out"
    with whole(place) as draft:
        if whole is whole_file:
            draft.touch()
        message = rf"out is being written by process {os.getpid()} .*; wait for it"
        with pytest.raises(BusyError, match=message), whole(place):
            pass
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("lstat", ".out.nmtkit"),
        ("iterdir", ".out.nmtkit"),
        ("lstat", "nmtkit.lock"),
        ("open", "nmtkit.lock"),
    ],
)
def test_other_writer_ends_before_lock(
    operation: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process pauses in front of an operation, and another one deletes its draft folder."""
    other = ExitStack()
    other.enter_context(draft_next_to(tmp_path / "out"))
    owner: Any = os if operation == "open" else Path
    original = getattr(owner, operation)
    paused = []

    def pause(path: Path | str, *args: Any, **options: Any) -> Any:
        if Path(path).name == name:
            monkeypatch.undo()
            other.close()
            paused.append(path)
        return original(path, *args, **options)

    monkeypatch.setattr(owner, operation, pause)
    write_file(tmp_path / "out")
    assert len(paused) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
@pytest.mark.parametrize("own", ["folder", "file", "link", "link as mark"])
def test_foreign_files_are_not_drafts(
    whole: Callable[[Path], AbstractContextManager[Path]], own: str, tmp_path: Path
) -> None:
    foreign = tmp_path / ".out.nmtkit"
    if own == "folder":
        foreign.mkdir()
        (foreign / "notes").write_bytes(b"mine")
    elif own == "file":
        foreign.write_bytes(b"")
    elif own == "link as mark":
        foreign.mkdir()
        (tmp_path / "mine").write_bytes(b"mine")
        (foreign / "nmtkit.lock").symlink_to("../mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        foreign.symlink_to("elsewhere")
    before = contents(tmp_path)
    with (
        pytest.raises(UserError, match=r"\.out\.nmtkit exists .*; move it"),
        whole(tmp_path / "out"),
    ):
        pass
    assert contents(tmp_path) == before


def test_temporary_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with suppress(RuntimeError), temporary_folder() as folder:
        assert folder.parent == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "model").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_draft_of_a_private_file_is_private(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.touch(mode=0o600)
    with draft_next_to(place) as draft:
        assert stat.S_IMODE(draft.parent.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == [place]


def test_file_next_to_draft_is_kept(tmp_path: Path) -> None:
    with draft_next_to(tmp_path / "out") as draft:
        draft.touch()  # so that the folder is kept, as after a kill
    (draft.parent / "notes").write_bytes(b"mine")
    write_file(tmp_path / "out")
    assert contents(tmp_path).keys() == {"out", ".out.nmtkit/notes"}


# Locks


@pytest.mark.parametrize("name", ["ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP"])
def test_file_system_without_locks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "lock").touch()
    for work in (
        lambda: locked(tmp_path / "lock", "it is locked").__enter__(),
        lambda: locked(tmp_path / "lock", "it is locked", wait_s=inf).__enter__(),
        lambda: find_holder(tmp_path / "lock"),
        lambda: whole_file(tmp_path / "text").__enter__(),
    ):
        with pytest.raises(UserError, match=rf"file system of {tmp_path}.*-o flock .*NFS"):
            work()


def test_waiting_names_holder(tmp_path: Path) -> None:
    holder = f"""
import sys
from pathlib import Path
from nmtkit.store.files import locked
with locked(Path({str(tmp_path / "lock")!r}), "", note={{}}):
    print("held", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        # It ends, and releases the lock, some time after the message.
        end = Timer(2, process.stdin.close)
        end.start()
        begin = monotonic()
        with (
            redirect_stderr(io.StringIO()) as printed,
            locked(tmp_path / "lock", "a.gz is being downloaded", wait_s=inf),
        ):
            assert monotonic() - begin > 1
            assert find_holder(tmp_path / "lock")
        end.join()
    (sentence,) = printed.getvalue().split("\n")[:-1]
    assert sentence.startswith(f"a.gz is being downloaded by process {process.pid} on ")
    assert "`kill -CONT`" in sentence  # what to do if it is stopped


@pytest.mark.parametrize("is_taken", [True, False])
def test_lock_deleted_before_it_is_locked(
    is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process pauses between opening a lock file and locking it.

    Meanwhile the holder ends and deletes the file, and perhaps a third process creates a new one.
    """
    third = ExitStack()

    def hold_lock() -> AbstractContextManager[None]:
        return locked(tmp_path / "lock", "it is being written")

    def pause_and_lock(file: Any, mode: int) -> None:
        monkeypatch.undo()
        Path(file.name).unlink()
        if is_taken:
            third.enter_context(hold_lock())
        fcntl.flock(file, mode)

    monkeypatch.setattr(fcntl, "flock", pause_and_lock)
    with third, ExitStack() as second:
        if is_taken:
            with pytest.raises(BusyError):
                second.enter_context(hold_lock())
        else:
            second.enter_context(hold_lock())
            with pytest.raises(BusyError):
                third.enter_context(hold_lock())


# Sealed


class Anything(BaseModel, extra="allow"):
    """A record that accepts all keys."""


def test_flipped_bit_of_sealed_file(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    write_json(path, sealed({"text": "aß\n", "numbers": [1, -0.5], "deep": {"none": None}}))
    read_sealed(path, Anything)
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DamagedError):
            read_sealed(path, Anything)
