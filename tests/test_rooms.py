"""A room's hash changes with the code in it, and with nothing else."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmtkit import rooms

ROOM = "room/"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a room and a file beside it."""
    package = tmp_path / "package"
    (package / "room" / "inside").mkdir(parents=True)
    (package / "beside.py").write_bytes(b"x = 1\n")
    (package / "room" / "a.py").write_bytes(b"def f():\n    return 1\n")
    (package / "room" / "b.cpp").write_bytes(b"int f() { return 1; }\n")
    (package / "room" / "inside" / "list").write_bytes(b"\x00\xff\n")
    monkeypatch.setattr(rooms, "PACKAGE", package)
    rooms._hash.cache_clear()
    yield package
    rooms._hash.cache_clear()


def hashed() -> str:
    rooms._hash.cache_clear()
    return rooms.hashes([ROOM])[ROOM]


def put(name: str, content: bytes) -> Callable[[Path], object]:
    def change(package: Path) -> None:
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("room/a.py", b"def f():\n    return 2\n"),
        put("room/b.cpp", b"int f() { return 2; }\n"),
        put("room/inside/list", b"\x00\xfe\n"),
        put("room/c.h", b""),
        put("room/page.html.j2", b"<p>\n"),
        lambda package: (package / "room" / "inside" / "list").unlink(),
        lambda package: (package / "room" / "a.py").rename(package / "room" / "c.py"),
        lambda package: shutil.move(package / "room" / "a.py", package / "room" / "inside"),
    ],
)
def test_change_of_code_or_data_changes_it(package: Path, change: Callable[[Path], object]) -> None:
    before = hashed()
    change(package)
    assert hashed() != before


@pytest.mark.parametrize(
    "change",
    [
        put("room/README.md", b"# Of the room\n"),
        put("room/__pycache__/a.cpython-311.pyc", b"compiled"),
        put("room/a.pyc", b"compiled"),
        put("room/.a.py.swp", b"an editor's"),
        put("room/.ipynb_checkpoints/a.py", b"an editor's"),
        put("room/a.py~", b"an editor's"),
        put("room/a.py", b"def f():\r\n    return 1\r\n"),  # a checkout with other line ends
        put("beside.py", b"x = 2\n"),
        lambda package: os.utime(package / "room" / "a.py", (1, 1)),
        lambda package: (package / "room" / "a.py").chmod(0o755),
        lambda package: (package / "room" / "empty").mkdir(),
    ],
)
def test_what_computes_nothing_does_not(package: Path, change: Callable[[Path], object]) -> None:
    before = hashed()
    change(package)
    assert hashed() == before


@pytest.mark.usefixtures("package")
def test_definition_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or else everything that was ever made would count as made by other code.

    By hand: printf 'NAME\\0%s\\n' $(sha256sum < FILE) of each file, sorted, through sha256sum.
    """
    assert hashed() == "88d946fd95ef113c"
    listed = Path.rglob
    for is_reversed in (False, True):
        monkeypatch.setattr(
            Path, "rglob", lambda *of, by=is_reversed: sorted(listed(*of), reverse=by)
        )
        assert hashed() == "88d946fd95ef113c"
    assert rooms.hashes(["beside.py"]) == {"beside.py": "6fc944984a57065b"}
