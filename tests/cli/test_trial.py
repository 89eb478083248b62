"""The speed that a few trial steps show, against machines whose time is a formula."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmtkit.cli.trial import measure_speed, text_of
from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import setup_of
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.distributed import Group
from nmtkit.training.metrics import Metrics
from nmtkit.training.trainer import Trainer, Work

SMALL = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "subword.n_merges=64"]
CPU = torch.device("cpu")
ALONE = Group(0, 1, CPU)
METRICS = Metrics(1, 0, 0.0, 0.0, 0.0, False, 0.0, 0, 0, 0.0)


def trainer_for(tmp_path: Path, *overrides: str, group: Group = ALONE) -> Trainer:
    recipe = load_recipe("demo", [*SMALL, *overrides])
    chain = Chain(recipe, Machine(tmp_path / "runs", device="cpu"), "demo")
    text = text_of(chain)
    n_rows = recipe.model.rows_for(text.n_tokens)
    return setup_of(chain, group).trainer(text.pairs, n_rows)


class Timed:
    """A machine that takes `fixed` seconds a step, and `per_token` for each target token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fixed: float, per_token: float) -> None:
        self.fixed, self.per_token, self.now = fixed, per_token, 100.0
        self.sizes: list[int] = []
        self.delays: dict[int, float] = {}  # of some steps
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(Trainer, "step", lambda _, work: self.step(work))

    def step(self, work: Work) -> Metrics:
        seconds = self.fixed + self.per_token * work.tgt_tokens
        seconds += self.delays.get(len(self.sizes), 0.0)
        self.now += seconds
        self.sizes.append(work.tgt_tokens)
        return replace(
            METRICS, src_tokens=work.src_tokens, tgt_tokens=work.tgt_tokens, seconds=seconds
        )


@pytest.mark.parametrize("batches", ["random", "like-length"])
@pytest.mark.parametrize(
    ("fixed", "per_token", "is_whole"),
    [
        (1e-3, 1e-4, True),
        (0.1, 1e-4, True),
        (0.5, 1e-2, False),  # a whole update takes 10 s
        (1.0, 1e-3, False),
        (0.0, 3e-2, False),
    ],
)
def test_speed_is_that_of_whole_updates(
    fixed: float,
    per_token: float,
    is_whole: bool,
    batches: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = trainer_for(tmp_path, f"training.batches='{batches}'")
    machine = Timed(monkeypatch, fixed, per_token)
    begin = machine.now
    speed = measure_speed(trainer, 8.0)
    largest = trainer.config.tgt_tokens_per_update
    assert speed == pytest.approx(largest / (fixed + per_token * largest), rel=0.05)
    assert machine.now - begin <= 1.25 * 8.0
    assert (max(machine.sizes) > 0.9 * largest) == is_whole
    assert len(machine.sizes) < 60


def test_steps_that_something_else_delays_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Timed(monkeypatch, 1e-3, 1e-4)
    machine.delays = dict.fromkeys([0, 2, *range(9, 60, 3)], 0.4)  # the first one sets up
    speed = measure_speed(trainer_for(tmp_path), 8.0)
    assert speed == pytest.approx(1 / (1e-4 + 1e-3 / 1_024), rel=0.01)


def test_constant_shapes_are_timed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of an update would take as long as the whole."""
    trainer = trainer_for(tmp_path)
    trainer.acceleration = Acceleration(static=True)
    machine = Timed(monkeypatch, 1e-3, 1e-4)
    measure_speed(trainer, 8.0)
    assert min(machine.sizes) > 0.9 * trainer.config.tgt_tokens_per_update
