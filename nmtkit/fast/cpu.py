"""What makes training fast on a CPU."""

import os
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F  # noqa: N812

# oneDNN compiles a product in 16 bits for each number of rows, and by default keeps the last 1,024.
# A layer needs fewer than 64.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # read at the first product

# Multiplications from which a product is worth that oneDNN compiles it.
MIN_WORK = 2**26
# How many times as fast oneDNN has to be in float32: it is where MKL leaves half of the processor's
# vectors unused, and nowhere else, so that the choice is always the same.
MIN_GAIN = 1.5


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b for `x` (..., in) and `weight` (out, in), on any device."""
    is_large = x.is_cpu and x.dtype == torch.float32 and x.numel() * len(weight) >= MIN_WORK
    if is_large and onednn_is_faster():
        out: Tensor = _OneDNNLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return out
    return F.linear(x, weight, bias)


@cache
def onednn_is_faster() -> bool:
    """Multiply some matrices, for milliseconds, and return whether oneDNN is to be used."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    x, weight = torch.ones(2, 512, 512)
    products: tuple[Callable[..., Tensor], ...] = (F.linear, _onednn)
    fastest = [float("inf")] * 2
    for _ in range(9):  # in turn, and the fastest counts: other programs are running
        for i, product in enumerate(products):
            begin = time.perf_counter()
            product(x, weight, None)
            fastest[i] = min(fastest[i], time.perf_counter() - begin)
    return fastest[0] > MIN_GAIN * fastest[1]


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        rows = grad.flatten(0, -2)
        grad_bias = rows.sum(0) if ctx.needs_input_grad[2] else None  # type: ignore[attr-defined]
        # The gradient of the weight is as fast with MKL.
        return _onednn(grad, weight.t(), None), rows.t() @ x.flatten(0, -2), grad_bias


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


class Dropout(nn.Dropout):
    """Dropout whose random numbers are drawn by `random_scale` on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to `x`, of any shape."""
        if not self.training or self.p == 0.0:
            return x
        return x * random_scale(x, self.p) if x.is_cpu else F.dropout(x, self.p)


def random_scale(x: Tensor, p: float) -> Tensor:
    """Return a tensor like `x` of zeros with probability `p`, and 1 / (1 - p) elsewhere.

    On a CPU, `F.dropout` draws one random number per element, in a single thread. Here one 64-bit
    number decides four elements, so `p` is rounded to a multiple of 1 / 65,536.
    """
    if not x.is_cpu:
        return F.dropout(torch.ones_like(x), p)
    n_draws = -(-x.numel() // 4)
    draws = torch.empty(n_draws, dtype=torch.int64).random_(-(2**63), None)
    n_dropped = round(p * 65_536)  # of the 65,536 values of 16 bits
    values = draws.view(torch.int16)[: x.numel()].view(x.shape)
    keep = torch.ge(values, n_dropped - 32_768, out=torch.empty_like(x))
    return keep.mul_(65_536 / (65_536 - n_dropped))
