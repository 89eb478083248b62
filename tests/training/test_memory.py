"""The estimated memory of a micro-batch, compared with autograd and with measurements."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from nmtkit.config.loading import load_recipe
from nmtkit.config.model import ModelConfig
from nmtkit.fast import accelerate as fast
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import count_parameters
from nmtkit.training.batches import Pairs
from nmtkit.training.bins import BinShape, fill_bins
from nmtkit.training.gradients import batch_losses
from nmtkit.training.memory import CPU_MAX_TOKENS, PARAMETER_BYTES, max_fitting_tokens, token_bytes

CUDA = torch.device("cuda")
GIB = 2**30
N_ROWS = 37_000
HALF = torch.bfloat16


def config_of(name: str) -> ModelConfig:
    return load_recipe(f"wmt14-en-de-{name}", []).model


class Fused(torch.autograd.Function):
    """Saves the same tensors as torch's attention kernel, without computing anything."""

    @staticmethod
    def forward(ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.zeros_like(q)
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError


def fused(q: Tensor, k: Tensor, v: Tensor, _mask: Tensor, _dropout: float) -> Any:
    return Fused.apply(q, k, v)  # type: ignore[no-untyped-call]


def kept_bytes(config: ModelConfig, dtype: torch.dtype, n_bins: int) -> int:
    """Bytes that autograd keeps of full bins until the backward pass."""
    model = accelerate(Transformer(config, 64, dtype)).train()
    length = config.max_positions
    offsets = np.arange(n_bins + 1) * length
    ids = np.full(offsets[-1], 7, np.uint16)
    pairs = Pairs(ids, offsets, ids, offsets)
    bins = fill_bins(pairs, [[pair] for pair in range(n_bins)], BinShape(n_bins, length))
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        losses = batch_losses(model, bins, 0.1)
    assert losses.smoothed.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("name", ["base", "big"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_layers", "n_decoder_layers"), [(1, None), (3, 1), (1, 2)])
def test_token_bytes_bound_autograd(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dtype: torch.dtype,
    n_layers: int,
    n_decoder_layers: int | None,
) -> None:
    """Without dropout, for which a CPU keeps more than a GPU."""
    monkeypatch.setattr(fast, "bin_attention", fused)
    changes: dict[str, Any] = {"dropout": 0.0, "max_positions": 32}
    changes |= {"n_layers": n_layers, "n_decoder_layers": n_decoder_layers}
    config = config_of(name).model_copy(update=changes)
    two, four = (kept_bytes(config, dtype, n_bins) for n_bins in (2, 4))
    kept = (four - two) / (2 * config.max_positions)
    estimate = token_bytes(config, 0, dtype)
    assert kept == pytest.approx(estimate, rel=0.08)
    assert kept <= estimate


def estimated_bytes(config: ModelConfig, dtype: torch.dtype, n_tokens: int) -> int:
    parameter_bytes = PARAMETER_BYTES * count_parameters(config, N_ROWS).total
    return parameter_bytes + n_tokens * token_bytes(config, N_ROWS, dtype)


@pytest.mark.parametrize(("name", "measured"), [("base", 8.2e9), ("big", 17.2e9)])
def test_estimate_agrees_with_h100(name: str, measured: float) -> None:
    """The measurements of `pipelines/results/training-speed_h100_2026-11-22.md`."""
    estimated = estimated_bytes(config_of(name), HALF, 25_000)
    assert estimated == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(
    ("gib", "name", "dtype", "min_tokens", "max_tokens"),
    [
        (14.6, "base", torch.float32, 8_000, 22_000),  # a T4 of 16 GB
        (12.0, "big", HALF, 8_000, 18_000),
        (79.2, "big", HALF, 25_000, None),  # an H100
        (79.2, "base", HALF, 25_000, None),
        (3.0, "big", HALF, 256, 256),  # too small: a single sentence of maximum length is tried
    ],
)
def test_tokens_that_fit_by_gpu(
    monkeypatch: pytest.MonkeyPatch,
    gib: float,
    name: str,
    dtype: torch.dtype,
    min_tokens: int,
    max_tokens: int | None,
) -> None:
    properties = SimpleNamespace(total_memory=int(gib * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    found = max_fitting_tokens(CUDA, config_of(name), N_ROWS, dtype)
    assert min_tokens <= found
    assert max_tokens is None or found <= max_tokens
    assert max_fitting_tokens(torch.device("cpu"), config_of(name), N_ROWS, dtype) == CPU_MAX_TOKENS
