"""What makes a step fast on a GPU. Each technique is a switch, so that its gain can be measured."""

import os
import shutil
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.fast.gpu import Graph, has_flash_attention
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import ModelConfig
from nmtkit.training.batches import Batch
from nmtkit.training.loss import Losses, smoothed_cross_entropy


@dataclass(frozen=True)
class Acceleration:
    """How a gradient is computed. It changes the gradient only by rounding, and dropout's masks."""

    dtype: torch.dtype = torch.float32  # of activations; weights and gradient sums are float32
    static: bool = False  # rows of constant length, which the other two techniques need
    compiled: bool = False  # torch.compile of a layer of each kind, reused for the others
    captured: bool = False  # one CUDA graph of both passes: the host need not launch its kernels

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
        """Return it in words."""
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
        self.captured = acceleration.captured  # may be switched off for the profiler
        self._graph: Graph[Tensor] | None = None
        self._batch: Batch  # read by each replay of the graph
        self._scale: Tensor
        if acceleration.static:
            for layer in (*model.encoder, *model.decoder):  # which may have been compiled before
                layer.compile(dynamic=False, fullgraph=True, disable=not acceleration.compiled)

    def add(self, batch: Batch, scale: float) -> Tensor:
        """Add `scale` times the gradient; return (2,) float64: sums of smoothed loss and nll."""
        if not self.captured:
            device = batch.src.device
            return self._compute(batch, torch.full((), scale, dtype=torch.float64, device=device))
        if self._graph is None:
            self._batch = batch
            self._scale = torch.zeros((), dtype=torch.float64, device=batch.src.device)
            self._graph = Graph(lambda: self._compute(self._batch, self._scale))
        for kept, new in zip(self._batch.tensors, batch.tensors, strict=True):
            kept.copy_(new)
        self._scale.fill_(scale)
        return self._graph.replay().clone()

    def _compute(self, batch: Batch, scale: Tensor) -> Tensor:
        losses = batch_losses(self._model, batch, self._label_smoothing)
        losses.smoothed.backward(scale)  # type: ignore[no-untyped-call]
        return torch.stack(losses).detach()


def batch_losses(model: Transformer, batch: Batch, label_smoothing: float) -> Losses:
    """Return smoothed loss and negative log-likelihood of a batch, summed over target tokens."""
    hidden = model(batch.src, batch.src_layout, batch.tgt_in, batch.tgt_layout)
    return smoothed_cross_entropy(hidden, model.output_matrix, batch.tgt_out, label_smoothing)
