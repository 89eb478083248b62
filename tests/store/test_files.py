"""Files and folders: whole or not there at all, locked while they are written."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from pydantic import BaseModel
from system.command import contents
from system.kills import BeforeOperation, attempt

from nmtkit.store.files import (
    draft_next_to,
    file_of,
    reopen,
    temporary_folder,
    whole_file,
    whole_folder,
    write_whole,
)
from nmtkit.store.locks import BusyError, holder_of, locked
from nmtkit.store.records import DamagedError, read_sealed, sealed, write_json
from nmtkit.utils.errors import UserError


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_file_is_the_old_one_or_the_new_one_after_any_kill(
    tmp_path: Path, power_fails: bool
) -> None:
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


def test_reopen_keeps_only_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    with reopen(path, 0) as file:
        file.write(b"committed, lost")
    with reopen(path, len(b"committed")) as file:
        assert path.read_bytes() == b"committed"
        file.write(b"!")
    assert path.read_bytes() == b"committed!"
    with pytest.raises(AssertionError, match="shorter than 99 bytes"):
        reopen(path, 99)


# Where a user names the place


def test_a_file_is_replaced_only_if_its_draft_is_finished(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
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


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
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


def test_an_open_file_of_this_process_or_a_read_only_one_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of an earlier run\n", encoding="utf-8")
    log = (tmp_path / "log").open("a", encoding="utf-8")
    with log, pytest.raises(UserError, match="cannot replace"):
        file_of(Path(f"/dev/fd/{log.fileno()}"))
    assert file_of(tmp_path / "log") == tmp_path / "log"
    (tmp_path / "log").chmod(0o444)
    with pytest.raises(UserError, match="read-only"), whole_file(tmp_path / "log"):
        pass


@pytest.mark.parametrize("write", [write_file, write_folder])
def test_what_a_user_names_is_written_wherever_earlier_writers_were_killed(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    def work(folder: Path) -> None:
        write(folder / "out")

    (tmp_path / "whole").mkdir()
    n_operations = attempt(work, tmp_path / "whole").operations
    assert n_operations > 6
    for number in range(1, n_operations + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert attempt(work, folder, death=BeforeOperation(number)).killed
        again = 0
        while not (folder / "out").exists():
            again += 2  # what clears the draft is killed too, later each time
            ended = attempt(work, folder, death=BeforeOperation(again))
            assert ended.killed or ended.code == 0, ended.said
        attempt(work, folder)  # a folder is refused, and what is left beside it goes
        assert [path.name for path in folder.iterdir()] == ["out"]
        assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_what_a_user_names_is_written_by_one_process_at_a_time(
    whole: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    place = tmp_path / "out"
    with whole(place) as draft:
        if whole is whole_file:
            draft.touch()
        message = rf"out is being written by process {os.getpid()} .*; wait for it to end"
        with pytest.raises(BusyError, match=message), whole(place):
            pass
    assert list(tmp_path.iterdir()) == [place]


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
@pytest.mark.parametrize("own", ["folder", "file", "link", "link as mark"])
def test_what_nmtkit_did_not_make_is_not_taken_for_a_draft(
    whole: Callable[[Path], AbstractContextManager[Path]], own: str, tmp_path: Path
) -> None:
    beside = tmp_path / ".out.nmtkit"
    if own == "folder":
        beside.mkdir()
        (beside / "notes").write_bytes(b"mine")
    elif own == "file":
        beside.write_bytes(b"")
    elif own == "link as mark":
        beside.mkdir()
        (tmp_path / "mine").write_bytes(b"mine")
        (beside / "nmtkit.lock").symlink_to("../mine")
    else:
        (tmp_path / "elsewhere").mkdir()
        beside.symlink_to("elsewhere")
    before = contents(tmp_path)
    with (
        pytest.raises(UserError, match=r"\.out\.nmtkit exists .*; move it"),
        whole(tmp_path / "out"),
    ):
        pass
    assert contents(tmp_path) == before


def test_temporary_folder_is_private_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_file_of_the_user_next_to_a_draft_is_kept(tmp_path: Path) -> None:
    with draft_next_to(tmp_path / "out") as draft:
        draft.touch()  # so that it stays, as after a kill
    (draft.parent / "notes").write_bytes(b"mine")
    write_file(tmp_path / "out")
    assert contents(tmp_path).keys() == {"out", ".out.nmtkit/notes"}


# Locks


@pytest.mark.parametrize("name", ["ENOSYS", "ENOLCK", "EOPNOTSUPP", "ENOTSUP"])
def test_a_file_system_without_locks_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "lock").touch()
    for work in (
        lambda: locked(tmp_path / "lock", "it is made").__enter__(),
        lambda: locked(tmp_path / "lock", "it is made", log=print).__enter__(),
        lambda: holder_of(tmp_path / "lock"),
        lambda: whole_file(tmp_path / "text").__enter__(),
    ):
        with pytest.raises(UserError, match=rf"file system of {tmp_path}.*-o flock .*NFS"):
            work()


def test_who_holds_a_lock_that_is_waited_for_is_said_after_a_second(tmp_path: Path) -> None:
    holder = f"""
import sys
from pathlib import Path
from nmtkit.store.files import locked
with locked(Path({str(tmp_path / "lock")!r}), "", note={{}}):
    print("held", flush=True)
    sys.stdin.readline()
"""
    said: list[tuple[float, str]] = []
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

        def log(sentence: str, end: Callable[[], None] = process.stdin.close) -> None:
            said.append((monotonic() - begin, sentence))
            end()

        begin = monotonic()
        with locked(tmp_path / "lock", "a.gz is being downloaded", log=log):
            assert holder_of(tmp_path / "lock")
    ((seconds, sentence),) = said
    assert seconds >= 1
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
    """A record that finds nothing wrong by itself."""


def test_a_flipped_bit_of_any_byte_of_a_sealed_file_is_found(tmp_path: Path) -> None:
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


# Room
