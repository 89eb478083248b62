"""Results of a changed nmtkit: every command says so, and --remake makes them again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmtkit.stages import chain, code
from nmtkit.stages.chain import STAGES
from nmtkit.store import open_directory
from system.command import RECIPE, Outcome, artifact, contents, done, nmtkit
from system.conftest import Finished


def change_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the nmtkit of a researcher who changed the cleaning."""
    present = code.present_code()
    other = {**present, "prepare": {**present["prepare"], "corpus/": "changed"}}
    for module in (chain, code):
        monkeypatch.setattr(module, "present_code", lambda: other)


def other_code(ended: Outcome) -> dict[str, Any]:
    """What `nmtkit status` says of each stage, which are all done."""
    stages = json.loads(done(ended).out)["stages"]
    assert {stage["state"] for stage in stages.values()} == {"fresh"}
    return {name: stage["other_code"] for name, stage in stages.items() if stage["other_code"]}


def test_status_names_the_rooms_that_the_results_depend_on(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = ("status", RECIPE, "--json")
    assert other_code(nmtkit(finished.folder, *status)) == {}
    change_code(monkeypatch)
    expected = {stage: {"prepare": ["corpus/"]} for stage in STAGES}
    assert other_code(nmtkit(finished.folder, *status)) == expected


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        (["run", RECIPE], "36 lines, other code"),
        (["verify", RECIPE], "yes, other code"),
        (["score", RECIPE], "36 lines, other code"),
        (["train", RECIPE], ""),
        (["runs"], "other code"),
        (["compare", RECIPE, "test.de", "--lang", "de"], f"{RECIPE}, other code"),
        (["report", "study.toml"], "finished, other code"),
        (["inspect", RECIPE], ""),
        (["report", RECIPE, "-o", "report"], ""),
    ],
)
def test_commands_say_in_a_line_that_other_code_made_a_result_and_mark_it(
    complete: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], mark: str
) -> None:
    change_code(monkeypatch)
    head = f'name = "mine"\ndescription = "One"\nrecipe = "./{RECIPE}"\nbleu = "sacrebleu"\n'
    study = f'{head}[[rows]]\nname = "base"\n'
    (complete / "study.toml").write_text(study, encoding="utf-8", newline="\n")
    before = contents(complete / "runs")
    ended = done(nmtkit(complete, *command))
    assert mark in ended.out
    report = complete / "report" / "report.md"
    said = report.read_text(encoding="utf-8") if report.exists() else ended.out + ended.err
    assert 1 <= said.count("corpus/ (prepare)") <= 2  # with progress and with results
    assert contents(complete / "runs") == before  # nothing is made again


def test_stage_says_that_other_code_made_what_it_takes(
    complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_code(monkeypatch)
    for stage in ("translate", "score"):
        shutil.rmtree(complete / "runs" / stage)
    ended = done(nmtkit(complete, "translate", RECIPE))
    assert ended.err.count("corpus/ (prepare)") == 1
    taken = open_directory(artifact(complete, "average")).manifest.code
    made = open_directory(artifact(complete, "translate")).manifest.code
    assert {stage: made[stage] for stage in taken} == taken


def test_remake_makes_again_what_other_code_made_beside_it(workplace: Path) -> None:
    options = (RECIPE, "--set", "training.max_steps=20")
    run = ("run", *options, "--workers", "1")
    status = ("status", *options, "--json")
    done(nmtkit(workplace, *run))
    old = contents(workplace / "runs")
    with pytest.MonkeyPatch.context() as patch:
        change_code(patch)
        assert other_code(nmtkit(workplace, *status)).keys() == {*STAGES}
        done(nmtkit(workplace, *run, "--remake"))
        new = contents(workplace / "runs")
        assert {name: content for name, content in new.items() if name in old} == old
        assert {name.split("/")[0] for name in new.keys() - old.keys()} == {*STAGES}
        assert other_code(nmtkit(workplace, *status)) == {}
        # What is made again is not made a third time, and neither is garbage.
        done(nmtkit(workplace, *run, "--remake"))
        assert "nothing to free" in done(nmtkit(workplace, "gc")).out
    assert other_code(nmtkit(workplace, *status)) == {}  # the old ones
    assert "nothing to free" in done(nmtkit(workplace, "gc")).out
    assert contents(workplace / "runs") == new
