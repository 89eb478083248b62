"""Which rooms the result of a stage depends on: what its code imports, and nothing left out."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmtkit.reporting.code import all_of, code_note, marked
from nmtkit.rooms import PACKAGE, hashes
from nmtkit.stages.chain import STAGES
from nmtkit.stages.code import ROOMS, other_code, present_code
from nmtkit.store import Manifest

# What only checks, finds, shows or measures changes no result.
NEUTRAL = {
    *(
        "files",
        "store",
        "rooms",
        "errors",
        "visible",
        "duration",
        "progress",
        "machine",
        "provenance",
    ),
    *("reporting", "stages", "__version__"),
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
    note = code_note(other)
    assert "model/ (train), training/ (train), metrics/ (score)" in note
    assert "\n" not in note
    assert marked("27.3", other) != "27.3"


def test_several_are_said_at_once() -> None:
    assert code_note({}) == ""
    both = all_of({"train": ["model/"]}, {"train": ["fast/", "model/"], "score": ["corpus/"]})
    assert both == {"train": ["model/", "fast/"], "score": ["corpus/"]}
    assert "corpus/ (prepare, score)" in code_note({"prepare": ["corpus/"], "score": ["corpus/"]})
