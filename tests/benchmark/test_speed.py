"""Training speed: counts, memory, and errors."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from typer.testing import CliRunner

from nmtkit.benchmark.speed import (
    SpeedRecord,
    measure_in_process,
    speed_grid,
    time_steps,
    training_speed,
)
from nmtkit.benchmark.trial import trial_text
from nmtkit.cli import app as cli
from nmtkit.cli.bench_train import COLUMNS
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.model.flops import update_flops
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import choose_setup, new_trainer
from nmtkit.training.distributed import Group
from nmtkit.utils.errors import UserError

SMALL = [
    "model.n_layers=1",
    "training.src_tokens_per_update=600",
    "training.tgt_tokens_per_update=500",
]


def load_pipeline(runs_dir: Path, *overrides: str) -> Pipeline:
    settings = Settings(runs_dir, device="cpu", workers=1)
    return Pipeline(load_recipe("demo", [*SMALL, *overrides]), settings, "demo")


def measure(pipeline: Pipeline, seconds: float = 0.1) -> SpeedRecord:
    return measure_in_process(
        partial(training_speed, seconds=seconds), pipeline, if_killed="killed"
    )


def test_speed_counts_real_tokens(tmp_path: Path) -> None:
    pipeline = load_pipeline(tmp_path)
    options = [f"--runs-dir={tmp_path}", "--device=cpu", "--seconds=0.1", "--json"]
    overrides = [f"--set={override}" for override in SMALL]
    ended = CliRunner().invoke(cli.app, ["bench", "train", "demo", *options, *overrides])
    (speed,) = json.loads(ended.stdout)
    assert not list(tmp_path.iterdir())
    assert (speed["recipe"], speed["text"]) == ("demo", "made up")
    assert speed["steps"] >= 1
    assert 400 < speed["tgt_tokens_per_update"] <= 500
    # Updates have similar numbers of source and target tokens, from which the FLOPs follow.
    n_rows = pipeline.recipe.model.embedding_rows(2_312)
    per_token = update_flops(pipeline.recipe.model, n_rows, 1_000, 1_000, 30) / 1_000
    assert speed["flops"] == pytest.approx(speed["tgt_tokens_per_second"] * per_token, rel=0.3)
    assert 0 < speed["mfu"] < 1
    grid = speed_grid("training", [{**speed, "peak_bytes": 10**9, "mfu": 0.5}], COLUMNS)
    row = dict(zip(grid.columns, grid.groups[0][0], strict=True))
    assert (row["recipe"], row["MFU"], row["memory"]) == ("demo", "50.0% of float32", "1.0 GB")


def test_slow_step_is_counted(tmp_path: Path) -> None:
    """A step that takes longer than the whole measurement is the measurement."""
    pipeline = load_pipeline(tmp_path)
    text = trial_text(pipeline)
    setup = choose_setup(pipeline, Group(0, 1, torch.device("cpu")))
    trainer = new_trainer(setup, text.pairs, pipeline.recipe.model.embedding_rows(text.n_tokens))
    timed = time_steps(trainer, 0.0)
    assert timed.n_steps == 1
    assert 400 < timed.tgt_tokens <= 500
    assert timed.seconds > 0


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_speed_on_gpu_is_captured(tmp_path: Path) -> None:
    pipeline = load_pipeline(tmp_path)
    speed = measure(
        Pipeline(pipeline.recipe, replace(pipeline.settings, device="cuda:0"), "demo"), 1.0
    )
    assert "captured" in speed["way"]
    assert 0 < speed["mfu"] < 1


def test_peak_memory_per_recipe(tmp_path: Path) -> None:
    """Memory of the recipe before and of the calling process does not count."""
    callers_memory = torch.ones(2 * 10**9, dtype=torch.uint8)
    wide = measure(load_pipeline(tmp_path, "model.d_ff=20000"))["peak_bytes"]
    narrow = measure(load_pipeline(tmp_path, "model.d_ff=100"))["peak_bytes"]
    assert narrow < wide - 100 * 2**20
    assert wide < callers_memory.nbytes


class Deadly(Pipeline):
    """Kills the process that it is sent to."""

    def __reduce__(self) -> tuple[Callable[[int], NoReturn], tuple[int]]:
        return os._exit, (9,)


def test_killed_process_and_missing_gpu(tmp_path: Path) -> None:
    pipeline = load_pipeline(tmp_path)
    with pytest.raises(UserError, match=r"^killed$"):
        measure(Deadly(pipeline.recipe, pipeline.settings, "demo"))
    nowhere = Pipeline(pipeline.recipe, replace(pipeline.settings, device="cuda:99"), "demo")
    with pytest.raises(UserError, match=r"^--device cuda:99 is not available"):
        measure(nowhere)
