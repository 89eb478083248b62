"""What makes a step fast on a GPU. Each technique is a switch, so that its gain can be measured."""

import os
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from nmtkit.fast.gpu import capture, has_flash_attention
from nmtkit.fast.packing import Capacity
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import ModelConfig
from nmtkit.training.batches import Batch
from nmtkit.training.loss import Losses, Softmax, smoothed_cross_entropy, softmax_

MAX_ERROR = 0.02  # of a gradient, over its norm: more than rounding, less than another dropout


@dataclass(frozen=True)
class Acceleration:
    """How a gradient is computed. It changes the gradient only by rounding, and dropout's masks."""

    dtype: torch.dtype = torch.float32  # of activations; weights and gradient sums are float32
    static: bool = False  # rows of constant length, which the other two techniques need
    compiled: bool = False  # torch.compile of a layer of each kind, reused for the others
    captured: bool = False  # a CUDA graph of both passes: the host need not launch their kernels

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        *,
        deterministic: bool,
        most: str = "auto",
    ) -> "Acceleration":
        """Return all techniques that this model, this device and `--accelerate` allow."""
        d_k, d_v, dropout = config.d_k, config.d_v, config.attention_dropout
        fused = has_flash_attention(device, dtype, d_k, d_v, dropout) and not deterministic
        fused = fused and most != "none"
        return cls(dtype, fused, fused and has_compiler(), fused and most != "compile")

    def simpler(self) -> "Acceleration | None":
        """Return this without its last technique, or None if it has none."""
        if self.captured:
            return replace(self, captured=False)
        if self.compiled:
            return replace(self, compiled=False)
        return replace(self, static=False) if self.static else None

    @property
    def precision(self) -> str:
        """The name of `dtype`, as in `--dtype`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        names = [each for each in ("static", "compiled", "captured") if getattr(self, each)]
        return ", ".join([self.precision, *names])


def has_compiler() -> bool:
    """Return whether Triton can compile here: with a C compiler and the headers of Python."""
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h"
    return any(map(shutil.which, names)) and header.exists()


class Backward:
    """Computes gradients of micro-batches and adds them to the gradients of the parameters."""

    def __init__(
        self, model: Transformer, label_smoothing: float, acceleration: Acceleration
    ) -> None:
        self._model, self._label_smoothing = model, label_smoothing
        self._captured = acceleration.captured
        self._softmax: Softmax = None
        self._graphs: dict[Capacity | None, tuple[Callable[[], Tensor], Batch]] = {}
        self._scale: Tensor  # it and the batches are read by each replay of the graphs
        if acceleration.static:
            embeddings = model.src_embedding, model.tgt_embedding
            for module in (*embeddings, *model.encoder, *model.decoder):  # maybe compiled before
                module.compile(dynamic=False, fullgraph=True, disable=not acceleration.compiled)
        if acceleration.compiled:
            self._softmax = torch.compile(softmax_, fullgraph=True)
        # Partial sums over the 25,000 tokens of an update must not be rounded to 16 bits.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def rehearse(self, batches: Sequence[Batch]) -> None:
        """Try a batch of each capacity, between two updates; no gradients are left.

        If wanted, each capacity gets a graph, which `add` replays for its batches from now on.

        Raises:
            RuntimeError: It fails, or the graphs do not compute what they were captured from.
        """
        self._scale = torch.ones((), dtype=torch.float64, device=batches[0].src.device)
        calls = [partial(self._compute, batch, self._scale) for batch in batches]
        self._model.zero_grad(set_to_none=False)
        called = _seeded(calls)
        if self._captured:
            gradients = [each.grad for each in self._model.parameters() if each.grad is not None]
            norm = nn.utils.get_total_norm(gradients)
            self._scale.zero_()
            replays = capture(calls)
            self._scale.fill_(-1)  # to take back what the calls have added
            replayed = _seeded(replays)
            error = nn.utils.get_total_norm(gradients) / norm
            if not (torch.allclose(replayed, called, rtol=1e-3) and error < MAX_ERROR):
                losses = f"{replayed[:, 0].tolist()} in place of {called[:, 0].tolist()}"
                raise RuntimeError(f"graphs find losses of {losses}; gradients are {error:.1%} off")
            for batch, replay in zip(batches, replays, strict=True):
                self._graphs[batch.capacity] = replay, batch
        self._model.zero_grad(set_to_none=False)

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add `scale` times the gradient; return (2,) float64: sums of smoothed loss and nll."""
        if batch.capacity not in self._graphs:
            device = batch.src.device
            return self._compute(batch, torch.full((), scale, dtype=torch.float64, device=device))
        replay, inputs = self._graphs[batch.capacity]
        for kept, new in zip(inputs.tensors, batch.tensors, strict=True):
            kept.copy_(new)
        self._scale.fill_(scale)
        return replay().clone()

    def _compute(self, batch: Batch, scale: Tensor) -> Tensor:
        losses = batch_losses(self._model, batch, self._label_smoothing, self._softmax)
        losses.smoothed.backward(scale)  # type: ignore[no-untyped-call]
        return torch.stack(losses).detach()


def _seeded(calls: Sequence[Callable[[], Tensor]]) -> Tensor:
    """Stack the results of `calls`, each of which draws the same random numbers; wait for them."""
    results = []
    for call in calls:
        torch.manual_seed(0)
        results.append(call().cpu())
    return torch.stack(results)


def batch_losses(
    model: Transformer, batch: Batch, label_smoothing: float, softmax: Softmax = None
) -> Losses:
    """Return smoothed loss and negative log-likelihood of a batch, summed over target tokens."""
    hidden = model(batch.src, batch.src_layout, batch.tgt_in, batch.tgt_layout)
    matrix = model.output_matrix
    return smoothed_cross_entropy(hidden, matrix, batch.tgt_out, label_smoothing, softmax)
