"""What rounds of kills find, in works that recover and in works that do not."""

import json
import shutil
import time
from pathlib import Path
from random import Random

import pytest

from nmtkit.errors import UserError
from nmtkit.selftest import attempt as attempt_module
from nmtkit.selftest import chaos as module
from nmtkit.selftest.attempt import Work, attempt
from nmtkit.selftest.chaos import Round, Step, _append, _read, _round, chaos
from nmtkit.selftest.contents import contents

WHOLE = "whole\n"


def careful(folder: Path) -> None:
    """Write a draft and rename it."""
    draft, place = folder / "runs" / "draft", folder / "runs" / "place"
    draft.parent.mkdir(exist_ok=True)
    if not place.exists():
        draft.write_text(WHOLE, encoding="utf-8")
        draft.rename(place)


def careless(folder: Path) -> None:
    """Take a file for done because it is there."""
    place = folder / "runs" / "place"
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        with place.open("w", encoding="utf-8") as file:
            file.write(WHOLE[:3])
            file.flush()
            for number in range(9):  # moments to die at
                (folder / "runs" / str(number)).mkdir(exist_ok=True)
            file.write(WHOLE[3:])


def stuck(folder: Path) -> None:
    """Refuse what a killed run left."""
    draft = folder / "runs" / "draft"
    draft.parent.mkdir(exist_ok=True)
    if draft.exists():
        raise UserError("there is a draft; delete it")
    careful(folder)


def waiting(folder: Path) -> None:
    """Wait for a killed run to end."""
    draft = folder / "runs" / "draft"
    draft.parent.mkdir(exist_ok=True)
    while draft.exists():
        time.sleep(1)
    careful(folder)


def step(place: Path, work: Work) -> Step:
    """A step that does `work`, as an undisturbed run of it is."""
    before = place / "before"
    before.mkdir()
    shutil.copytree(before, place / "after")
    ended = attempt(work, place / "after")
    assert ended.code == 0
    whole = contents(place / "after" / "runs")
    return Step("work", work, before, whole, ended.operations, ended.seconds, has_processes=False)


def problems(place: Path, work: Work, n_rounds: int = 10) -> set[str | None]:
    """What so many rounds find."""
    one = step(place, work)
    rounds = [_round([one], place / "killed", Random(f"round {i}")) for i in range(n_rounds)]
    assert sum(len(each.kills) for each in rounds) >= n_rounds // 2
    return {each.problem for each in rounds}


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (careful, {None}),
        (careless, {None, "other bytes in place"}),
        (stuck, {None, "exit code 1: there is a draft; delete it"}),
    ],
)
def test_rounds_find_what_is_lost(tmp_path: Path, work: Work, found: set[str | None]) -> None:
    assert problems(tmp_path, work) == found


def test_a_hang_ends_and_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_module, "PATIENCE_S", 0.3)
    assert "hangs: " in problems(tmp_path, waiting, n_rounds=5)


ROUND = Round("train", ["before operation 3", "the command, after 0.5 s"], None, 1.5)


def test_a_log_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    _append(log, ROUND)
    with log.open("a", encoding="utf-8") as file:
        file.write('{"step": "tra')  # cut by a kill
    one = step(tmp_path, careful)
    monkeypatch.setattr(module, "_steps", lambda *_, **__: [one])
    rounds = list(chaos(tmp_path, 5, log, 1, can_convert=False))
    assert rounds[0] == ROUND
    assert sum(len(each.kills) for each in rounds) in (5, 6, 7)
    assert _read(log) == rounds
    # Nothing is left to do; the steps are not even tried.
    monkeypatch.setattr(module, "_steps", lambda *_, **__: [])
    assert list(chaos(tmp_path, 5, log, 1, can_convert=False)) == rounds


@pytest.mark.parametrize("text", ["text\n", "text", '{"step": 1}\n', "[1]\n"])
def test_another_file_is_no_log(tmp_path: Path, text: str) -> None:
    log = tmp_path / "notes.txt"
    log.write_text(text, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=r"notes\.txt is not a log of"):
        list(chaos(tmp_path, 5, log, 1, can_convert=False))
    assert log.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_some_kills_of_every_step(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rounds = list(chaos(tmp_path, 30, log, 2, can_convert=True))
    assert {each.problem for each in rounds} == {None}
    assert len(log.read_text(encoding="utf-8").split("\n")) == len(rounds) + 1
    assert json.loads(log.read_text(encoding="utf-8").split("\n")[0])["step"] == rounds[0].step
