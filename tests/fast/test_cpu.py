"""Dropout with 16-bit random numbers."""

import pytest
import torch
from torch import Tensor

from nmtkit.fast.cpu import Dropout


def dropped_ones(p: float, *shape: int, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    output: Tensor = Dropout(p)(torch.ones(shape))
    return output


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_rate_and_scale(p: float) -> None:
    n = 1_000_000
    output = dropped_ones(p, 1000, 1000)
    share = (output == 0).double().mean().item()
    assert abs(share - p) < 5 * (p * (1 - p) / n) ** 0.5  # five standard errors
    (kept,) = torch.unique(output[output != 0])
    assert kept.item() == pytest.approx(1 / (1 - p), rel=2e-5)  # p is rounded to 1 / 65,536


def test_disabled_dropout_changes_nothing() -> None:
    x = torch.randn(5, 7)
    before = torch.get_rng_state()
    assert torch.equal(Dropout(0.9).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_gradient_has_same_mask() -> None:
    x = torch.randn(13, 17, requires_grad=True)
    output = Dropout(0.4)(x)
    output.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, output == 0)
    assert torch.allclose(x.grad * x.detach(), output.detach())
