"""The speed of a few trial steps, with machines whose time is computed by a formula."""

import time
from pathlib import Path

import pytest
import torch

from nmtkit.benchmark.trial import PART_TOKENS, measure_speed, trial_text
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import choose_setup, new_trainer
from nmtkit.training.distributed import Group
from nmtkit.training.step import PreparedUpdate, Trainer

SMALL = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "subword.n_merges=64"]
CPU = torch.device("cpu")
ONE_PROCESS = Group(0, 1, CPU)
N_THREADS = 2


def trainer_for(tmp_path: Path, *overrides: str, group: Group = ONE_PROCESS) -> Trainer:
    recipe = load_recipe("demo", [*SMALL, *overrides])
    pipeline = Pipeline(recipe, Settings(tmp_path / "runs", device="cpu"), "demo")
    text = trial_text(pipeline)
    n_rows = recipe.model.embedding_rows(text.n_tokens)
    return new_trainer(choose_setup(pipeline, group), text.pairs, n_rows)


class Timed:
    """A machine that needs `fixed` seconds per step, and `per_token` for every target token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fixed: float, per_token: float) -> None:
        self.fixed = fixed
        self.per_token = per_token
        self.now = 100.0
        self.used = 0.0  # seconds of processor time
        self.n_threads = N_THREADS
        self.sizes: list[int] = []
        self.delays: dict[int, float] = {}  # of some steps
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "process_time", lambda: self.used)
        monkeypatch.setattr(torch, "get_num_threads", lambda: self.n_threads)
        monkeypatch.setattr(torch, "set_num_threads", self.set_num_threads)
        monkeypatch.setattr(Trainer, "train_step", lambda _, prepared: self.step(prepared))

    def step(self, prepared: PreparedUpdate) -> "Timed":
        seconds = self.fixed + self.per_token * prepared.tgt_tokens
        seconds += self.delays.get(len(self.sizes), 0.0)
        self.now += seconds
        self.used += N_THREADS * self.per_token * prepared.tgt_tokens
        self.sizes.append(prepared.tgt_tokens)
        return self

    def set_num_threads(self, number: int) -> None:
        self.n_threads = number

    def wait(self) -> None:
        """The time has passed already."""


@pytest.mark.parametrize(
    ("per_token", "n_tokens", "n_steps"), [(1e-5, 8_000, 51), (1e-2, 500, 2), (1e-2, 8_000, 2)]
)
def test_speed_of_updates_or_parts(
    per_token: float, n_tokens: int, n_steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    override = f"training.tgt_tokens_per_update={n_tokens}"
    trainer = trainer_for(tmp_path, override, override.replace("tgt", "src"))
    settings = Timed(monkeypatch, 0.0, per_token)
    settings.delays = {0: 9.0}  # the first one sets up
    assert measure_speed(trainer, 8.0) == pytest.approx(1 / per_token)
    assert 0.9 * min(n_tokens, PART_TOKENS) < max(settings.sizes) <= min(n_tokens, PART_TOKENS)
    assert len(settings.sizes) >= n_steps


def test_speed_is_of_fastest_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_for(tmp_path)
    settings = Timed(monkeypatch, 0.0, 1e-3)
    settings.delays = dict.fromkeys(range(3, 99), 9.0)  # other programs take the cores after 2 s
    assert measure_speed(trainer, 8.0) == pytest.approx(1_000)


def test_speed_on_busy_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs always take the cores: only the used processor time shows the speed."""
    trainer = trainer_for(tmp_path)
    settings = Timed(monkeypatch, 0.0, 1e-3)
    settings.delays = dict.fromkeys(range(99), 30.0)
    assert measure_speed(trainer, 8.0) == pytest.approx(1_000 / N_THREADS)
    assert settings.n_threads == N_THREADS  # as before


def test_whole_updates_on_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, a part of an update takes as long as the whole."""
    trainer = trainer_for(tmp_path)
    trainer.group = Group(0, 1, torch.device("meta"))
    settings = Timed(monkeypatch, 1e-3, 1e-4)
    measure_speed(trainer, 8.0)
    assert min(settings.sizes) > 0.9 * trainer.config.tgt_tokens_per_update
