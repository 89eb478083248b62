"""Copies of weights in 16 bits: the same bits as casts at each use."""

import numpy as np
import pytest
import torch
from torch import Tensor
from trainers import config_of, corpus, model_of, trainer_of

from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.weight_copies import WeightCopies
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.gradients import batch_losses
from nmtkit.training.micro_batches import pack


def half_model(dtype: torch.dtype) -> Transformer:
    torch.manual_seed(1)
    return accelerate(Transformer(model_of().config, 23, dtype))


def gradients(model: Transformer, copies: WeightCopies | None) -> list[Tensor]:
    batch = pack(corpus(), np.arange(20))
    model.eval()  # without dropout
    batch_losses(model, batch, 0.1, None, copies).smoothed.backward()  # type: ignore[no-untyped-call]
    if copies is not None:
        copies.add_gradients(None)
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        found.append(parameter.grad)
        parameter.grad = None
    return found


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_copies_equal_casts(dtype: torch.dtype) -> None:
    model = half_model(dtype)
    copies = WeightCopies(model, dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.1)
    address = copies.output_matrix.data_ptr()
    stale = gradients(model, copies)
    copies.refresh()
    expected = gradients(model, None)
    assert all(map(torch.equal, gradients(model, copies), expected))
    assert not all(map(torch.equal, stale, expected))
    assert copies.output_matrix.data_ptr() == address


def test_steps_refresh_copies() -> None:
    acceleration = Acceleration(torch.bfloat16)
    model = half_model(torch.bfloat16)
    trainer = trainer_of(model, corpus(), config_of(), acceleration=acceleration, max_tokens=35)
    copies = trainer.gradients.copies
    assert copies is not None
    for prepared in trainer.prepared_updates(3):
        before = model.output_matrix.detach().bfloat16()
        trainer.train_step(prepared).wait()
        assert torch.equal(copies.output_matrix, before)
        assert not torch.equal(copies.output_matrix, model.output_matrix.detach().bfloat16())


def test_float32_has_no_copies() -> None:
    acceleration = Acceleration(torch.float32)
    trainer = trainer_of(
        model_of(), corpus(), config_of(), acceleration=acceleration, max_tokens=35
    )
    assert trainer.gradients.copies is None
