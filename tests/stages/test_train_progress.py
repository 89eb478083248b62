"""Messages before the first step of a training, and the warning about its speed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from models import tiny

from nmtkit.config.loading import load_recipe
from nmtkit.model.transformer import Transformer
from nmtkit.stages.train_progress import (
    SpeedWatch,
    float16_hint,
    too_long_warning,
    training_summary,
)
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group
from nmtkit.training.metrics import Metrics
from nmtkit.training.step import Setup, Trainer

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
LENGTHS = [3, 5, 7, 9, 4]  # of the sources; targets have a token more


def trainer_of(max_positions: int, *, use_bins: bool) -> Trainer:
    src_offsets = np.cumsum([0, *LENGTHS])
    tgt_offsets = src_offsets + np.arange(len(LENGTHS) + 1)
    pairs = Pairs(
        np.full(src_offsets[-1], 5, np.uint16),
        src_offsets,
        np.full(tgt_offsets[-1], 6, np.uint16),
        tgt_offsets,
    )
    model = Transformer(tiny(max_positions=max_positions), 23)
    config = load_recipe("demo").training
    group = Group(0, 1, CPU)
    setup = Setup(model.config, config, group, Acceleration(), max_tokens=120, use_bins=use_bins)
    return Trainer(model, pairs, setup)


@pytest.mark.parametrize(
    ("dtype", "has_bfloat16", "expected"),
    [("auto", False, True), ("auto", True, False), ("float32", False, False)],
)
def test_float16_is_named(
    monkeypatch: pytest.MonkeyPatch, dtype: str, has_bfloat16: bool, expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    trainer = trainer_of(20, use_bins=True)
    assert float16_hint(trainer, dtype) is None  # on a CPU
    trainer.group = Group(0, 1, CUDA)
    hint = float16_hint(trainer, dtype)
    assert (hint is not None) == expected
    assert hint is None or "--dtype float16" in hint


@pytest.mark.parametrize(
    ("level", "size", "accelerate", "expected"),
    [
        (Level.CAPTURED, 4, "auto", "with CUDA graphs"),
        (Level.COMPILED, 1, "compile", "1 of 4 GPUs|without CUDA graphs|--accelerate compile"),
        (Level.EAGER, 1, "none", "not compiled|--accelerate none"),
        (Level.EAGER, 4, "auto", "not compiled|gcc"),
    ],
)
def test_summary_names_optimizations(
    monkeypatch: pytest.MonkeyPatch, level: Level, size: int, accelerate: str, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    trainer = trainer_of(20, use_bins=True)
    trainer.group = Group(0, size, CUDA)
    trainer.setup = replace(trainer.setup, acceleration=Acceleration(level=level))
    line = training_summary(trainer, accelerate)
    for part in ("parameters on ", " x 16 tokens", "; Some GPU", *expected.split("|")):
        assert part in line
    assert ("of 4 GPUs" in line) == (size < 4)


def test_summary_counts_long_pairs() -> None:
    trainer = trainer_of(8, use_bins=False)
    assert "cpu, float32; up to 120 tokens" in training_summary(trainer, "auto")
    assert "1 of 5 pairs" in str(too_long_warning(trainer))
    assert too_long_warning(trainer_of(10, use_bins=False)) is None


def step(tgt_tokens: int, seconds: float) -> Metrics:
    return Metrics(1, 1, 2.0, 2.0, 1.0, False, 1e-3, 7, tgt_tokens, seconds)


def test_slow_minute_is_a_warning() -> None:
    watch = SpeedWatch()
    for _ in range(3):  # the first minute: 100 target tokens/s
        assert watch.add(step(2_000, 20.0)) is None
    for _ in range(3):  # a quarter of it
        assert watch.add(step(500, 20.0)) is None
    assert watch.add(step(100, 30.0)) is None  # slow, but not for a minute
    assert watch.add(step(5_000, 30.0)) is None
    assert watch.add(step(500, 40.0)) is None
    warning = watch.add(step(500, 30.0))
    assert warning is not None
    assert "from 100 to 14 " in warning
    assert "OMP_NUM_THREADS" in warning


def test_slow_first_minute_is_no_warning() -> None:
    watch = SpeedWatch()
    assert [watch.add(step(1, 61.0)) for _ in range(3)] == [None] * 3
