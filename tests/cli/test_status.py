"""nmtkit status: stages that are done, running, stopped or missing."""

import json
import os
import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from chains import tiny_pipeline
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.runs.listing import State, explain_missing, list_artifacts, next_command, states
from nmtkit.stages import prepare, train
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.stages.training_state import training_progress
from nmtkit.training.metrics import CHECKPOINTS, DIVERGED, write_metrics
from nmtkit.utils.errors import UserError

RUNNER = CliRunner()


def write_steps(pipeline: Pipeline, n: int) -> Path:
    """Write the metrics of a training with `n` steps of two seconds, the last line cut off."""
    draft = pipeline.store.draft_place("train", pipeline.fingerprint("train"))
    line = {"skipped": False, "src_tokens": 9, "tgt_tokens": 9, "seconds": 2.0}
    path = draft / "checkpoints" / "metrics.jsonl"
    write_metrics(path, [{"step": step + 1, **line} for step in range(n)])
    path.write_text(path.read_text(encoding="utf-8") + '{"step": 7', encoding="utf-8")
    return draft


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = tiny_pipeline(tmp_path)
    prepare.run(pipeline)
    training = pipeline.recipe.training.model_copy(update={"max_steps": 60_000})
    recipe = pipeline.recipe.model_copy(update={"training": training})
    return Pipeline(recipe, pipeline.settings, "./mine.toml", ["model.dropout=0.1"])


@pytest.mark.parametrize("is_running", [True, False])
def test_time_left_from_last_steps(pipeline: Pipeline, is_running: bool) -> None:
    draft = pipeline.store.draft("train", pipeline.fingerprint("train"), resume=True, note={})
    with draft if is_running else nullcontext():
        write_steps(pipeline, 40_000)
        found = states(pipeline)
        training = training_progress(pipeline)
    train_state = "running" if is_running else "partial"
    expected = ["done", train_state, "missing", "missing", "missing"]
    assert [state.state for state in found] == expected
    assert training is not None
    assert (training.step, training.max_steps, training.seconds_left) == (40_000, 60_000, 40_000)
    assert "step 40,000 of 60,000" in found[1].why
    assert ("process" in found[1].why, "left" in found[1].why) == (is_running, is_running)
    assert next_command(pipeline, found) == (
        f"nmtkit run ./mine.toml --set=model.dropout=0.1 --runs-dir={pipeline.settings.runs_dir}"
    )


def test_changed_text_is_named(pipeline: Pipeline, tmp_path: Path) -> None:
    """In all stages that depend on it; not if another value differs."""
    text = tmp_path / "src"
    text.write_text(text.read_text(encoding="utf-8").replace("a a", "a b"), encoding="utf-8")
    changed = Pipeline(pipeline.recipe, pipeline.settings, "./mine.toml")
    prepared = states(changed)[0]
    assert prepared.state == "missing"
    assert prepared.why.startswith(f"{text} changed since {pipeline.settings.runs_dir}")
    subword = pipeline.recipe.subword.model_copy(update={"n_merges": 2})
    recipe = pipeline.recipe.model_copy(update={"subword": subword})
    other = states(Pipeline(recipe, pipeline.settings, "./mine.toml"))[0]
    assert other.why == "not built with these values yet"


def test_divergence_that_is_not_utf8(pipeline: Pipeline) -> None:
    draft = write_steps(pipeline, 3)
    (draft / CHECKPOINTS / DIVERGED).write_bytes(b"loss \xff is not finite")
    found = states(pipeline)[1]
    assert found.state == "diverged"
    assert found.why.startswith("loss \ufffd is not finite; `nmtkit train")


def test_pipe_in_place_of_lock_is_skipped(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing waits for its other end."""
    draft = write_steps(pipeline, 3)
    os.mkfifo(draft.with_suffix(".lock"))
    assert states(pipeline)[1].state == "partial"
    listed = list(list_artifacts(pipeline.settings.runs_dir))
    assert [artifact.state for artifact in listed] == ["published", "stopped"]
    assert f"{draft.with_suffix('.lock')} is not a regular file" in capsys.readouterr().err


def test_next_command_by_states(pipeline: Pipeline) -> None:
    assert training_progress(pipeline) is None
    place = pipeline.store.place("prepare", pipeline.fingerprint("prepare"))
    (place / "counts.json").unlink()
    found = states(pipeline)
    assert found[0].state == "damaged"
    assert next_command(pipeline, found) is None
    finished = [State(stage, "done", "0", f"runs/{stage}/0", "") for stage in STAGES]
    assert next_command(pipeline, finished) == pipeline.commands.translate()
    assert shlex.split(pipeline.commands.translate())[:4] == [
        "nmtkit",
        "translate",
        "--recipe",
        pipeline.command,
    ]


def test_status_of_stopped_training(tmp_path: Path) -> None:
    overrides = ["training.max_steps=60_000"]
    settings = Settings(tmp_path / "runs")
    write_steps(Pipeline(load_recipe("demo", overrides), settings, "demo", overrides), 3)
    run = ["demo", "--set=training.max_steps=60_000", f"--runs-dir={tmp_path / 'runs'}"]
    value: dict[str, Any] = json.loads(RUNNER.invoke(cli.app, ["status", *run, "--json"]).stdout)
    assert value["stages"]["train"]["state"] == "partial"
    assert value["training"]["step"] == 3
    assert shlex.split(value["next"]) == ["nmtkit", "run", *run]
    assert "next: nmtkit run demo" in RUNNER.invoke(cli.app, ["status", *run]).stdout
    error = RUNNER.invoke(cli.app, ["average", *run]).exception
    assert isinstance(error, UserError)
    assert "step 3 of 60,000" in str(error)


def with_values(pipeline: Pipeline, section: str, **values: object) -> Pipeline:
    """The pipeline of the same recipe with other values in a section."""
    changed = getattr(pipeline.recipe, section).model_copy(update=values)
    recipe = pipeline.recipe.model_copy(update={section: changed})
    return Pipeline(recipe, pipeline.settings, pipeline.command)


def test_missing_stage_names_differing_values(tmp_path: Path) -> None:
    pipeline = with_values(tiny_pipeline(tmp_path), "training", max_steps=2)
    prepare.run(pipeline)
    train.run(pipeline)
    path = str(pipeline.store.place("train", pipeline.fingerprint("train")))

    def why(other: Pipeline) -> list[str]:
        return [state.why for state in explain_missing(other, states(other))]

    longer = why(with_values(pipeline, "training", max_steps=5))
    assert path in longer[1]
    assert "training.max_steps = 2 instead of 5" in longer[1]
    assert "continues" in longer[1]
    # Nothing can be continued with fewer steps, or with another model.
    shorter = why(with_values(pipeline, "training", max_steps=1))
    assert "training.max_steps = 2 instead of 1" in shorter[1]
    other = with_values(with_values(pipeline, "training", max_steps=5), "model", dropout=0.7)
    assert "model.dropout" in why(other)[1]
    assert "training.max_steps" in why(other)[1]
    for text in (shorter[1], why(other)[1]):
        assert "continues" not in text
    # Only the first missing stage is explained: its values decide on the later ones.
    assert "subword.n_merges" in why(with_values(pipeline, "subword", n_merges=2))[0]
    assert path not in " ".join(why(with_values(pipeline, "subword", n_merges=2)))
    (tmp_path / "src").write_text("b b\n" * 6, encoding="utf-8")
    other_text = why(with_values(pipeline, "subword", n_merges=2))[0]
    assert "other text in corpus.train" in other_text
    assert "subword.n_merges = 3 instead of 2" in other_text
