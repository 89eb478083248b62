"""What `nmtkit status` says of stages that are done, running, stopped or missing."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from chains import tiny_pipeline
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import average
from nmtkit.stages import prepare, states
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.training.metrics import write_metrics
from nmtkit.utils.errors import UserError


def steps(pipeline: Pipeline, n: int) -> Path:
    """Let the training of a chain have done so many steps of two seconds each."""
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
def test_a_training_tells_its_step_and_what_is_left_from_its_own_speed(
    pipeline: Pipeline, is_running: bool
) -> None:
    draft = pipeline.store.draft("train", pipeline.fingerprint("train"), resume=True, note={})
    with draft if is_running else nullcontext():
        steps(pipeline, 40_000)
        found = states.states(pipeline)
        training = states.training_of(pipeline)
    names = ["fresh", "running" if is_running else "partial", *["missing"] * 3]
    assert [each.state for each in found] == names
    assert training is not None
    assert (training.step, training.max_steps, training.seconds_left) == (40_000, 60_000, 40_000)
    assert "step 40,000 of 60,000" in found[1].why
    assert ("process" in found[1].why, "left" in found[1].why) == (is_running, is_running)
    assert states.next_command(pipeline, found) == (
        f"nmtkit run ./mine.toml --set=model.dropout=0.1 --runs-dir={pipeline.settings.runs_dir}"
    )


def test_what_is_typed_next_depends_on_what_is_done(pipeline: Pipeline) -> None:
    assert states.training_of(pipeline) is None
    place = pipeline.store.place("prepare", pipeline.fingerprint("prepare"))
    (place / "counts.json").unlink()
    found = states.states(pipeline)
    assert (found[0].state, states.next_command(pipeline, found)) == ("damaged", None)
    done = [states.State(stage, "fresh", "0", f"runs/{stage}/0", "") for stage in STAGES]
    assert states.next_command(pipeline, done) == "nmtkit translate --bundle runs/average/0"


def test_status_and_average_tell_of_a_training_that_is_not_finished(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(pipeline, 3)
    monkeypatch.setattr("nmtkit.cli.options.load_pipeline", lambda *_: pipeline)
    told: dict[str, Any] = json.loads(CliRunner().invoke(cli.app, ["status", "x", "--json"]).stdout)
    assert told["stages"]["train"]["state"] == "partial"
    assert (told["training"]["step"], told["next"].split()[:2]) == (3, ["nmtkit", "run"])
    shown = CliRunner().invoke(cli.app, ["status", "x"]).stdout
    assert "next: nmtkit run ./mine.toml" in shown
    with pytest.raises(UserError, match=r"stopped at step 3 of 60,000, with no checkpoint yet"):
        average._tell_what_is_there(pipeline)
