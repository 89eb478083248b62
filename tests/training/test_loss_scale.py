"""Training in float16: the loss scale, overflows, and the scale in checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_loop import losses, run
from trainers import CPU, config_of, corpus, model_of, trainer_of

from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.checkpoint import checkpoints, read_progress
from nmtkit.training.loop import MAX_SKIPPED
from nmtkit.training.step import INITIAL_FACTOR, LossScale

FLOAT16 = Acceleration(torch.float16)


def half_model(seed: int = 1) -> Transformer:
    model = model_of(seed=seed)
    model.src_embedding.dtype = model.tgt_embedding.dtype = torch.float16
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types_are_not_scaled(dtype: torch.dtype) -> None:
    scale = LossScale(dtype, CPU)
    scale.update(torch.tensor(False))
    assert float(scale.factor) == 1.0
    assert not scale.is_overflow(torch.tensor(False))


def test_factor_equals_grad_scaler() -> None:
    """The same as torch.amp's GradScaler after the same overflows."""
    ours = LossScale(torch.float16, CPU)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2_000)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    overflows = {3, 4, 10, 2_500}
    for step in range(6_000):
        parameter.grad = torch.full((1,), torch.inf if step in overflows else 1.0)
        theirs.scale(torch.ones(1))
        theirs.step(optimizer)
        theirs.update()
        ours.update(torch.tensor(step not in overflows))
        assert float(ours.factor) == theirs.get_scale(), step


def test_smallest_factor_is_one() -> None:
    scale = LossScale(torch.float16, CPU)
    for _ in range(16):
        assert scale.is_overflow(torch.tensor(False))
        scale.update(torch.tensor(False))
    assert float(scale.factor) == 1.0
    assert not scale.is_overflow(torch.tensor(False))  # no smaller factor can help


def test_training_follows_float32(tmp_path: Path) -> None:
    config = config_of(max_steps=40, warmup_steps=100)
    run(tmp_path / "full", model_of(), config)
    run(tmp_path / "half", half_model(), config, acceleration=FLOAT16)
    full = losses(tmp_path / "full")
    half = losses(tmp_path / "half")
    assert not any(line["overflow"] for line in half)
    for ours, exact in zip(half, full, strict=True):
        assert ours["loss"] == pytest.approx(exact["loss"], rel=5e-3)
        if ours["step"] <= 20:  # later, small differences have grown
            assert ours["gradient_norm"] == pytest.approx(exact["gradient_norm"], rel=2e-2)


def test_small_gradients_survive() -> None:
    """Without a loss scale, gradients below 6e-8 would be zero in float16."""
    model = half_model()
    trainer = trainer_of(model, corpus(), config_of(), acceleration=FLOAT16)
    (prepared,) = trainer.prepared_updates(1)
    found = []
    for factor in (INITIAL_FACTOR, 1e-5):
        trainer.loss_scale.factor.fill_(factor)
        trainer.gradients.start_update()
        for _, batch in prepared.micro_batches:
            trainer.gradients.add(batch, trainer.loss_scale.factor.double() / 1e3)
        weight = model.encoder[0].feed_forward.w1.weight.grad
        assert weight is not None
        found.append(float(weight.count_nonzero()))
    assert found[0] > 2 * found[1]


def overflow_at(model: Transformer, steps: set[int]) -> None:
    """Make the gradients of these steps infinite, as if they exceeded float16.

    It does so at the embeddings: the gradients of other weights arrive at their 16-bit copies.
    """
    n_passes = 0

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        nonlocal n_passes
        n_passes += 1
        return gradient * torch.inf if n_passes in steps else gradient

    def watch(_module: object, _inputs: object, out: torch.Tensor) -> None:
        if out.requires_grad:
            out.register_hook(hook)  # type: ignore[no-untyped-call]

    model.encoder[0].feed_forward.register_forward_hook(watch)


def test_overflow_changes_no_weight(tmp_path: Path) -> None:
    """It is not counted as a skipped step, and it halves the scale."""
    config = config_of(max_steps=6, checkpoint_every_steps=1, keep_checkpoints=6)
    model = half_model()
    overflow_at(model, {3, 5})
    progress = run(tmp_path, model, config, acceleration=FLOAT16, max_tokens=999)
    assert (progress.overflows, progress.skipped) == (2, 0)
    assert progress.loss_scale == 2.0**14
    lines = losses(tmp_path)
    assert [line["overflow"] for line in lines] == [False, False, True, False, True, False]
    assert not any(line["skipped"] for line in lines)
    before, after = checkpoints(tmp_path)[1:3]
    assert (before / "model.safetensors").read_bytes() == (after / "model.safetensors").read_bytes()


def test_scale_is_resumed(tmp_path: Path) -> None:
    """A stopped training continues to the same bits, with the loss scale that it had."""
    config = config_of(max_steps=8)
    whole = half_model()
    overflow_at(whole, {2})
    run(tmp_path / "whole", whole, config, acceleration=FLOAT16, max_tokens=999)
    stopped = half_model()
    overflow_at(stopped, {2})
    run(tmp_path / "parts", stopped, config, acceleration=FLOAT16, max_tokens=999, stop_after=4)
    assert read_progress(checkpoints(tmp_path / "parts")[-1]).loss_scale == 2.0**15
    run(tmp_path / "parts", half_model(seed=9), config, acceleration=FLOAT16, max_tokens=999)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    # The factor itself does not change losses, unless the gradient overflows.
    parts, uninterrupted = (checkpoints(tmp_path / name)[-1] for name in ("parts", "whole"))
    assert read_progress(parts) == read_progress(uninterrupted)


def test_scale_starts_after_float32(tmp_path: Path) -> None:
    """A checkpoint of float32 has no loss scale, so float16 starts with the initial one."""
    config = config_of(max_steps=8)
    run(tmp_path, model_of(), config, max_tokens=999, stop_after=4)
    progress = run(tmp_path, half_model(), config, acceleration=FLOAT16, max_tokens=999)
    assert (progress.loss_scale, progress.n_finite) == (INITIAL_FACTOR, 4)


def test_overflow_without_end_diverges(tmp_path: Path) -> None:
    """After the factor has fallen from 2^16 to 1."""
    model = half_model()
    overflow_at(model, set(range(1, 99)))
    arguments: dict[str, Any] = {"acceleration": FLOAT16, "max_tokens": 999}
    with pytest.raises(Exception, match="not finite"):
        run(tmp_path, model, config_of(max_steps=30), **arguments)
    lines = losses(tmp_path)
    assert [line["overflow"] for line in lines] == [True] * 16 + [False] * MAX_SKIPPED
    assert [line["skipped"] for line in lines] == [False] * 16 + [True] * MAX_SKIPPED
