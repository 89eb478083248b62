"""Which rooms the result of a stage depends on: what its code imports, and nothing left out."""

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmtkit.reporting.code import code_notes, marked
from nmtkit.stages import code as code_module
from nmtkit.stages.chain import STAGES
from nmtkit.stages.code import PACKAGE, ROOMS, hashes, other_code, present_code
from nmtkit.store import Manifest

# What only checks, finds, shows or measures changes no result.
NEUTRAL = {
    *("files", "store", "errors", "visible", "duration", "progress", "machine", "provenance"),
    *("reporting", "stages", "tables", "__version__"),
    "recipe",  # its values are in the fingerprint; only train computes with it
    "interchange",  # of other tools' models
}
# Scores of the development set during training are shown, and steer nothing.
MONITORING = {"train": {"decoding", "evaluation"}}


def rooms_of(path: Path) -> Iterator[str]:
    """The rooms of nmtkit that a file, or the files of a folder, import."""
    for file in path.rglob("*.py") if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "nmtkit":
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nmtkit."):
                yield str(node.module).split(".")[1]


def test_every_stage_has_rooms_that_exist() -> None:
    assert list(ROOMS) == list(STAGES)
    for room in {room for rooms in ROOMS.values() for room in rooms}:
        assert (PACKAGE / room).is_dir() == room.endswith("/")
        assert (PACKAGE / room).exists()


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_imports_is_recorded(stage: str) -> None:
    """Here or by a stage before it, whose artifact it reads."""
    stages = list(STAGES)[: list(STAGES).index(stage) + 1]
    known = {room.split("/")[0].removesuffix(".py") for each in stages for room in ROOMS[each]}
    left_out = NEUTRAL | MONITORING.get(stage, set())
    todo = [room.removesuffix(".py") for room in ROOMS[stage]]
    seen: set[str] = set()
    while todo:
        room = todo.pop()
        path = PACKAGE / room if (PACKAGE / room).is_dir() else PACKAGE / f"{room}.py"
        for name in set(rooms_of(path)) - left_out - seen:
            assert name in known, f"{room} imports {name}"
            seen.add(name)
            todo.append(name)


def manifest(kind: str, code: dict[str, dict[str, str]]) -> Manifest:
    told = {"fingerprint": 16 * "0", "made_by": {}, "code": code, "sha256": ""}
    return Manifest.model_validate({"format": 2, "files": {}, "kind": kind, **told})


def code_of(kind: str) -> dict[str, dict[str, str]]:
    stages = list(STAGES)[: list(STAGES).index(kind) + 1]
    return {stage: hashes(ROOMS[stage]) for stage in stages}


def test_present_code_is_no_other() -> None:
    for stage in STAGES:
        assert other_code(manifest(stage, code_of(stage))) == {}
    averaged = manifest("average", {}).model_copy(update={"fingerprint": None})
    assert other_code(averaged) == {}
    assert present_code()["train"] == hashes(ROOMS["train"])


def test_rooms_that_changed_came_or_went_are_named_with_their_stage() -> None:
    code = code_of("score")
    code["train"]["training/"] = "0" * 16
    del code["train"]["model/"]
    code["score"]["metrics/"] = "0" * 16
    other = other_code(manifest("score", code))
    assert other == {"train": ["model/", "training/"], "score": ["metrics/"]}
    (note,) = code_notes({}, other)
    assert code_notes({}) == []
    assert "model/ (train), training/ (train), metrics/ (score)" in note
    assert "\n" not in note
    assert marked("27.3", other) != "27.3"


# The hash of a room


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a room and a file beside it."""
    (tmp_path / "room" / "inside").mkdir(parents=True)
    (tmp_path / "beside.py").write_bytes(b"x = 1\n")
    (tmp_path / "room" / "a.py").write_bytes(b"def f():\n    return 1\n")
    (tmp_path / "room" / "b.cpp").write_bytes(b"int f() { return 1; }\n")
    (tmp_path / "room" / "inside" / "list").write_bytes(b"\x00\xff\n")
    monkeypatch.setattr(code_module, "PACKAGE", tmp_path)
    yield tmp_path
    code_module._hash.cache_clear()


def hashed() -> str:
    code_module._hash.cache_clear()
    return hashes(["room/"])["room/"]


def put(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda package: (package / name).write_bytes(content)


# By hand: printf 'NAME\\0%s\\n' $(sha256sum < FILE) of each file, sorted, through sha256sum.
HASH = "88d946fd95ef113c"


@pytest.mark.parametrize(
    "change",
    [
        put("room/a.py", b"def f():\n    return 2\n"),
        put("room/inside/list", b"\x00\xfe\n"),
        put("room/page.html.j2", b"<p>\n"),
        lambda package: (package / "room" / "a.py").rename(package / "room" / "c.py"),
    ],
)
def test_change_of_code_or_data_changes_it(package: Path, change: Callable[[Path], object]) -> None:
    assert hashed() == HASH
    change(package)
    assert hashed() != HASH


@pytest.mark.parametrize(
    "change",
    [
        put("room/README.md", b"# Of the room\n"),
        put("room/a.pyc", b"compiled"),
        put("room/.a.py.swp", b"an editor's"),
        put("room/a.py", b"def f():\r\n    return 1\r\n"),  # a checkout with other line ends
        put("beside.py", b"x = 2\n"),
        lambda package: os.utime(package / "room" / "a.py", (1, 1)),
        lambda package: (package / "room" / "empty").mkdir(),
    ],
)
def test_what_computes_nothing_does_not(package: Path, change: Callable[[Path], object]) -> None:
    change(package)
    assert hashed() == HASH
