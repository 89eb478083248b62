"""The draft of a translation is resumed after a kill at any moment, and only where it fits."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from system.kills import BeforeOperation, attempt

from nmtkit.commands.text_draft import text_draft
from nmtkit.errors import UserError

PARTS = [["erste\n"], ["zweite\u2028\n", "\n"], ["vierte\n"]]
WHOLE = "".join(line for part in PARTS for line in part)


def write(place: Path) -> int:
    """Write the lines that are missing, and return how many there were."""
    lines = [line for part in PARTS for line in part]
    with text_draft(place, "these") as draft:
        n_before = draft.n_lines
        for line in lines[n_before:]:
            draft.append(line, 1)
    return n_before


def stop_after(place: Path, n_parts: int, made_from: str = "these") -> None:
    """Write so many parts."""
    with pytest.raises(KeyboardInterrupt), text_draft(place, made_from) as draft:  # noqa: PT012
        for part in PARTS[:n_parts]:
            draft.append("".join(part), len(part))
        raise KeyboardInterrupt


def test_what_was_written_is_continued(tmp_path: Path) -> None:
    place = tmp_path / "out"
    stop_after(place, 2)
    assert not place.exists()
    with (tmp_path / "out.partial").open("ab") as draft:
        draft.write(b"half a li")  # of a part that was not recorded
    assert write(place) == 3
    assert place.read_text(encoding="utf-8") == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        write(folder / "out")

    whole = tmp_path / "whole"
    whole.mkdir()
    undisturbed = attempt(work, whole)
    assert undisturbed.code == 0
    assert undisturbed.operations > 3 * len(PARTS)
    for point in range(1, undisturbed.operations + 1):
        folder = tmp_path / f"{point}"
        folder.mkdir()
        assert attempt(work, folder, "sorted", BeforeOperation(point)).killed
        assert attempt(work, folder).code == 0
        assert (folder / "out").read_text(encoding="utf-8") == WHOLE
        assert [path.name for path in folder.iterdir()] == ["out"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def fewer_lines(record: Path) -> None:
    content = json.loads(record.read_bytes())
    assert content["n_lines"] == 3
    record.write_text(json.dumps({**content, "n_lines": 2}), encoding="utf-8")


@pytest.mark.parametrize(
    ("made_from", "damage", "says"),
    [
        ("these", lambda draft, _: flip(draft), "was changed since it was written"),
        ("these", lambda draft, _: os.truncate(draft, 7), "was changed since it was written"),
        ("these", lambda _, record: flip(record), "cannot be resumed: "),
        ("these", lambda _, record: record.write_bytes(b"{}"), "cannot be resumed: "),
        ("these", lambda _, record: fewer_lines(record), "cannot be resumed: "),
        ("others", lambda *_: None, "is of another text, model, engine or version"),
    ],
)
def test_draft_that_does_not_fit_is_started_anew(
    made_from: str,
    damage: Callable[[Path, Path], object],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place, draft = tmp_path / "out", tmp_path / "out.partial"
    stop_after(place, 2, made_from)
    damage(draft, tmp_path / "out.partial.json")
    assert write(place) == 0
    assert place.read_text(encoding="utf-8") == WHOLE
    (told,) = capsys.readouterr().err.removesuffix("\n").split("\n")
    assert told.startswith(f"{draft} {says}")
    assert told.endswith("; starting anew")


def test_file_that_is_no_draft_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "out.partial"
    mine.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"out\.partial is in the way.*; move it, or name another"):
        write(tmp_path / "out")
    assert mine.read_text(encoding="utf-8") == "my notes\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]


def test_record_without_its_draft_is_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "out"
    stop_after(place, 2)
    (tmp_path / "out.partial").unlink()
    assert write(place) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_device_is_written_as_it_comes(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", tmp_path / "got"
    os.mkfifo(pipe)
    if not (reader := os.fork()):
        with pipe.open("rb") as source, got.open("wb") as target:
            shutil.copyfileobj(source, target)
        os._exit(0)
    assert write(pipe) == 0
    os.waitpid(reader, 0)
    assert got.read_text(encoding="utf-8") == WHOLE
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "got"}
