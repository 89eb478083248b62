"""nmtkit study: rows are ordinary runs, divided among processes, resumed after a kill."""

import csv
import io
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.config.study import Study, load_study
from nmtkit.stages import train
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.run_all import run_all
from nmtkit.store.artifacts import Store
from nmtkit.study.figures import Pipelines, StudyRun, lock_name, study_table
from nmtkit.study.study_runs import run_rows, study_pipelines
from nmtkit.study.study_table import study_notes
from nmtkit.training.metrics import DIVERGED
from nmtkit.utils.errors import UserError
from system.command import RECIPE, Outcome, done, nmtkit, outcome, sentence, start, traces

STUDY = "two.toml"
COMMON = ["averaging.n_checkpoints=1", "training.max_steps=6"]
# The overrides of every row.
OWN: tuple[list[str], ...] = ([], ["model.n_heads=1", "model.d_k=32", "model.d_v=32"])
TOML = f"""
name = "two"
description = "Rows of a study"
recipe = "{RECIPE}"
bleu = "compound_split_bleu"
set = {json.dumps(COMMON)}

[[rows]]
name = "base"
published = {{ perplexity = 4.5, bleu = 20.5, parameters = 2 }}

[[rows]]
name = "A-h1"
set = {json.dumps(OWN[1])}
published = {{ bleu = 19.0 }}
"""
HOT = "training.learning_rate_scale=1e30"
DIVERGES = f"""
[[rows]]
name = "hot"
set = ["{HOT}", "training.checkpoint_every_steps=1"]
"""


@pytest.fixture
def place(prepared: Path) -> Path:
    (prepared / STUDY).write_text(TOML, encoding="utf-8", newline="\n")
    return prepared


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run rows in this process, because that is faster."""

    def nmtkit(pipeline: Pipeline, command: Sequence[str]) -> int:
        assert command[0] == "run"
        try:
            run_all(pipeline)
        except UserError:
            return 1
        return 0

    monkeypatch.setattr("nmtkit.study.study_runs._run_nmtkit", nmtkit)


def study(folder: Path, *args: str) -> Outcome:
    return nmtkit(folder, "study", STUDY, "--workers=1", *args)


def loaded(folder: Path, *overrides: str) -> tuple[Study, Pipelines]:
    """The study in a folder and its pipelines."""
    found = load_study(str(folder / STUDY))
    return found, study_pipelines(found, Settings(folder / "runs", workers=1), overrides)


def run(folder: Path, rows: str | None = None, *overrides: str) -> list[str]:
    """Run rows; return the names of those that failed."""
    found, pipelines = loaded(folder, *overrides)
    return run_rows(found.select_rows(rows), pipelines)


def study_runs(folder: Path, *overrides: str) -> dict[str, StudyRun]:
    return {run.name: run for run in study_table(*loaded(folder, *overrides)).runs()}


def states(folder: Path, *overrides: str) -> dict[str, str]:
    return {name: run.state for name, run in study_runs(folder, *overrides).items()}


@pytest.mark.slow
def test_rows_are_ordinary_runs(place: Path) -> None:
    ended = done(study(place))
    assert set(states(place).values()) == {"finished"}
    assert len(list(Store(place / "runs").all("prepare"))) == 1
    (report,) = json.loads(done(nmtkit(place, "report", STUDY, "--json")).out)["studies"]
    for runs, own in zip((row["runs"] for row in report["rows"]), OWN, strict=True):
        (row,) = runs
        overrides = [*COMMON, *own]
        options = [f"--set={override}" for override in overrides]
        assert row["run"] == " ".join([RECIPE, *options])
        recipe = load_recipe(str(place / RECIPE), overrides)
        pipeline = Pipeline(recipe, Settings(place / "runs"), str(place / RECIPE), overrides)
        scores = json.loads((pipeline.need("score").path / "scores.json").read_bytes())
        assert row["scores"] == scores
        metrics = (pipeline.need("train").path / "metrics.jsonl").read_text(encoding="utf-8")
        last = json.loads(metrics.split("\n")[-2])
        assert (row["steps"], row["dev_perplexity"]) == (6, last["dev_perplexity"])
        assert f"{last['dev_perplexity']:.2f}" in ended.out
        assert f"{scores['test']['compound_split_bleu']['score']:.2f}" in ended.out
    assert "19.0 (-1.5)" in ended.out
    assert "compound-split BLEU: get_ende_bleu.sh" in ended.out


@pytest.mark.usefixtures("in_process")
def test_diverged_row_is_skipped(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (place / STUDY).write_text(f"{TOML}{DIVERGES}", encoding="utf-8", newline="\n")
    assert run(place, "hot,A-*") == []
    assert states(place) == {"base": "not run", "A-h1": "finished", "hot": "diverged"}
    hot = study_runs(place)["hot"]
    assert hot.why.startswith("weights after step 4: not finite; `nmtkit train ")
    assert any(
        note.startswith("hot: diverged, weights")
        for note in study_notes(study_table(*loaded(place)))
    )
    capfd.readouterr()
    assert run(place, "hot") == []
    assert "nmtkit run" not in capfd.readouterr().err  # it is not retried, except by this command:
    assert f"--set={HOT}" in shlex.split(hot.why.split("`")[1])
    pipeline = loaded(place)[1]["hot"]["hot"]
    with pytest.raises(UserError, match="not finite"):
        train.run(pipeline)
    assert states(place)["hot"] == "diverged"
    draft = pipeline.store.draft_place("train", pipeline.fingerprint("train"))
    (draft / "checkpoints" / DIVERGED).unlink()
    assert states(place)["hot"] == "stopped"


@pytest.mark.usefixtures("in_process")
def test_failed_row_is_skipped(
    place: Path,
) -> None:
    text = TOML.replace('"model.n_heads=1"', '\'test.sets=[{src="gone.en", tgt="gone.de"}]\'')
    (place / STUDY).write_text(text, encoding="utf-8", newline="\n")
    assert run(place, "A-h1,base") == ["A-h1"]
    assert states(place)["base"] == "finished"
    row = study_runs(place)["A-h1"]
    assert (row.state, "gone.en" in row.why) == ("not run", True)


@pytest.mark.usefixtures("in_process")
def test_study_in_non_unicode_folder(place: Path) -> None:
    place = place.rename(place.with_name("place\udcff"))  # the byte 0xff, as Python decodes it
    assert run(place, "base") == []
    assert states(place)["base"] == "finished"


@pytest.mark.usefixtures("in_process")
def test_locked_row_is_skipped(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    base = loaded(place)[1]["base"]["base"]
    with base.store.lock("study", lock_name(base), note={}):
        assert run(place) == []
        assert states(place) == {"base": "running", "A-h1": "finished"}
    assert f"is being built by process {os.getpid()} on " in capfd.readouterr().err
    with base.store.lock("train", base.fingerprint("train")):
        assert states(place)["base"] == "running"  # by `nmtkit train`
    before = traces(place / "runs")
    assert run(place) == []
    assert set(states(place).values()) == {"finished"}
    assert_kept(place, before)


def assert_kept(folder: Path, before: dict[str, Any]) -> None:
    """Assert that all files except locks are as before."""
    after = traces(folder / "runs")
    kept = {path for path in before if before[path][2] and not path.endswith(".lock")}
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}


@pytest.mark.usefixtures("in_process")
def test_mean_and_deviation_of_seeds(
    place: Path,
) -> None:
    (place / STUDY).write_text(f"seeds = [1, 2, 3]\n{TOML}", encoding="utf-8", newline="\n")
    assert run(place, "base") == []
    names = [f"base seed={seed}" for seed in (1, 2, 3)]
    found = study_runs(place)
    assert len(list(Store(place / "runs").all("prepare"))) == 1
    for n, lost in ((3, []), (2, names[1:2]), (1, names[:2])):
        for name in lost:
            shutil.rmtree(place / "runs" / "score" / str(found[name].scored), ignore_errors=True)
        kept = [found[name].dev_perplexity or 0 for name in names if name not in lost]
        deviation = f" ± {np.std(kept, ddof=1):.2f}" if n > 1 else ""
        table = done(nmtkit(place, "report", STUDY, "--table", "markdown")).out
        assert f" {np.mean(kept):.2f}{deviation} (n={n}) " in table
        printed = done(nmtkit(place, "report", STUDY, "--table", "csv")).out
        rows = list(csv.DictReader(io.StringIO(printed)))
        assert [row["seed"] for row in rows if row["row"] == "base"] == ["1", "2", "3"]
        figures = [float(row["dev_perplexity"]) for row in rows if row["dev_perplexity"]]
        assert figures == pytest.approx(kept, rel=1e-5)
        row = study_table(*loaded(place)).rows[0]
        assert row.state == (f"{n} finished, {3 - n} stopped" if lost else "finished")
    assert run(place, "base") == []
    assert study_runs(place) == found
    assert len(list(Store(place / "runs").all("train"))) == 3


@pytest.mark.slow
def test_stopped_study_resumes(place: Path) -> None:
    """The process that runs a row stops with the study."""
    longer = "training.max_steps=60"
    command = ("study", STUDY, f"--set={longer}")
    assert run(place, "base", longer) == []
    before = traces(place / "runs")
    process = start(place, *command)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, b"")
    assert any(b"A-h1 (2 of 2): nmtkit run" in line for line in lines)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    ended = outcome(process)
    assert ended.code == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in sentence(ended)  # of the study, or of its training
    assert run(place, None, longer) == []
    assert set(states(place, longer).values()) == {"finished"}
    assert_kept(place, before)


@pytest.mark.slow
def test_two_processes_divide_the_rows(place: Path) -> None:
    shutil.rmtree(place / "runs")
    (place / STUDY).write_text(f"{TOML}{DIVERGES}", encoding="utf-8", newline="\n")
    processes = [start(place, "study", STUDY, "--workers=1") for _ in range(2)]
    for process in processes:
        done(outcome(process))
    assert states(place) == {"base": "finished", "A-h1": "finished", "hot": "diverged"}
    assert len(list(Store(place / "runs").all("train"))) == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("A-h1", "base", "called base"),
        ("n_heads=1", "n_head=1", "row A-h1 of study two: "),
        (RECIPE, "gone.toml", "gone.toml"),
        ("bleu = 19.0", "blue = 19.0", "Unknown key (did you mean 'bleu'?)"),
        ('"compound_split_bleu"', '"bleu"', "bleu = "),
        ("set =", "seeds = [2, 1, 2]\nset =", "seed 2 occurs 2 times in seeds; list it once"),
        ("set =", "seeds = []\nset =", "seeds = []: "),
        ("set =", "seeds = [1, -2]\nset =", "seeds[1] = -2: "),
        ("set =", "seeds = [true]\nset =", "seeds[0] = true: "),
    ],
)
def test_invalid_study_is_an_error(workplace: Path, old: str, new: str, message: str) -> None:
    (workplace / STUDY).write_text(TOML.replace(old, new), encoding="utf-8", newline="\n")
    with pytest.raises(UserError) as error:
        loaded(workplace)
    assert message in str(error.value)


def test_unknown_row_is_an_error(place: Path) -> None:
    with pytest.raises(UserError, match=r"'A-h2' .*did you mean 'A-h1'"):
        run(place, "base,A-h2")
    with pytest.raises(UserError, match=r"did you mean 'table-3'\?"):
        load_study("table3")
    with pytest.raises(UserError, match=r"./no.toml does not exist"):
        load_study("./no.toml")
