"""Attempts that end by themselves, by a kill at a given moment, or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmtkit.errors import UserError
from nmtkit.selftest import attempt as module
from nmtkit.selftest.attempt import AfterSeconds, BeforeOperation, Victim, attempt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for an attempt."""
    place = tmp_path / "work"
    place.mkdir()
    return place


def five_changes(folder: Path) -> None:
    """Change files five times."""
    (folder / "draft").write_bytes(b"1")  # 1
    descriptor = os.open(folder / "draft", os.O_RDONLY)
    os.fsync(descriptor)  # 2
    (folder / "draft").rename("place")  # 3, in the folder that it works in
    (folder / "empty").mkdir()  # 4
    (folder / "place").unlink()  # 5


def test_every_change_is_counted(folder: Path) -> None:
    ended = attempt(five_changes, folder)
    assert (ended.code, ended.operations, ended.killed, ended.hung) == (0, 5, False, False)
    assert [path.name for path in folder.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("number", "left"),
    [(1, []), (2, ["draft"]), (3, ["draft"]), (4, ["place"]), (5, ["empty", "place"])],
)
def test_death_comes_before_the_operation(folder: Path, number: int, left: list[str]) -> None:
    ended = attempt(five_changes, folder, "reversed", BeforeOperation(number))
    assert (ended.code, ended.killed) == (-signal.SIGKILL, True)
    assert sorted(path.name for path in folder.iterdir()) == left


def test_death_that_would_come_later_does_not_come(folder: Path) -> None:
    for death in (BeforeOperation(6), AfterSeconds(60.0)):
        ended = attempt(five_changes, folder, death=death)
        assert (ended.code, ended.killed) == (0, False)
        (folder / "empty").rmdir()


def wait(folder: Path) -> None:
    """Start a process, and wait longer than anybody does."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (folder / "child").write_text(str(child.pid), encoding="utf-8")
    child.wait()
    (folder / "child has ended").touch()
    time.sleep(60)


def is_alive(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists a process's children")
@pytest.mark.parametrize("victim", Victim)
def test_the_victim_dies(folder: Path, monkeypatch: pytest.MonkeyPatch, victim: Victim) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    ended = attempt(wait, folder, death=AfterSeconds(0.5, victim))
    assert ended.killed
    assert ended.code == -signal.SIGKILL
    assert ended.hung == (victim == Victim.CHILD) == (folder / "child has ended").exists()
    child = int((folder / "child").read_text(encoding="utf-8"))
    assert is_alive(child) == (victim == Victim.COMMAND)
    if victim == Victim.COMMAND:
        os.kill(child, signal.SIGKILL)


def test_what_is_said_is_kept(folder: Path) -> None:
    def complain(_: Path) -> None:
        raise UserError("the disk is full")

    def break_down(_: Path) -> None:
        raise ValueError("unexpected")

    ended = attempt(complain, folder)
    assert (ended.code, ended.said) == (1, "the disk is full\n")
    ended = attempt(break_down, folder)
    assert ended.code == 1
    assert ended.said.startswith("Traceback")
    assert ended.said.endswith("ValueError: unexpected\n")


@pytest.mark.parametrize(
    ("order", "expected"), [("sorted", ["a", "b", "c"]), ("reversed", ["c", "b", "a"])]
)
def test_names_are_listed_in_the_order(folder: Path, order: str, expected: list[str]) -> None:
    for name in "bca":
        (folder / name).touch()

    def list_it(folder: Path) -> None:
        found = [path.name for path in folder.iterdir()]
        with os.scandir(folder) as entries:
            assert [entry.name for entry in entries] == found == expected

    assert attempt(list_it, folder, order).said == ""
