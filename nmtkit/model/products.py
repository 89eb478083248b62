"""Products with the weights of a model."""

import os
import re
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional as F  # noqa: N812

# Matrices from this width on are worth oneDNN in float32. It compiles a product for each new number
# of rows, which costs narrower models as much as they gain.
MIN_WIDTH = 512
# Multiplications of a product that is worth it on a Zen 5 processor, whatever its width: 0.3 ms on
# two cores, and twice as many with MKL.
MIN_WORK = 2**26

CPUINFO = Path("/proc/cpuinfo")  # the kernel's description of the processor

# oneDNN compiles a product for each number of rows, with 0.3 MB of code, and by default keeps the
# last 1,024. With 64, more than a layer needs, 50 updates of d_model 256 in bfloat16 take 1.2 GB
# instead of 1.7. A process that translates 2,000 lines took 594 MB with 32, and 830 with 1,024.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")  # read at the first product


@cache
def is_intel(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether the processor is one of Intel's, for which MKL is written."""
    return "GenuineIntel" in _described(cpuinfo)


@cache
def is_zen5(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether the processor is one of AMD's family 26.

    Its cores multiply twice as many numbers with AVX-512 as with AVX2, which is what MKL uses.
    """
    described = _described(cpuinfo)
    return "AuthenticAMD" in described and bool(re.search(r"cpu family\s*: 26\n", described))


def _described(cpuinfo: Path) -> str:
    try:
        return cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system
        return ""


def is_avx2() -> bool:
    """Return whether torch computes with AVX2, because the processor has no AVX-512."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b for `x` (..., in) and `weight` (out, in).

    In float32 on a CPU, torch's own products are those of MKL, which has AVX-512 for Intel's
    processors alone. On a Zen 4 core, they reach 80 to 103 GFLOP/s with the matrices of base, and
    oneDNN's 102 to 111. A step of base takes 7 % less processor time. On two Zen 5 cores, products
    with narrow weights reach 210 to 220 and oneDNN's 450 to 480. On two Zen 3 cores, which have no
    AVX-512, it is 129 to 173 and oneDNN's 122 to 152, gradients included.
    """
    if not _is_for_onednn(x, weight):
        return F.linear(x, weight, bias)
    out: Tensor = _OneDNNLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    if not x.is_cpu or x.dtype != torch.float32:
        return False
    is_worth_compiling = min(weight.shape) >= MIN_WIDTH or (
        x.numel() * len(weight) >= MIN_WORK and is_zen5()
    )
    is_faster = is_worth_compiling and (is_intel() or not is_avx2())
    return is_faster and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        rows = grad.flatten(0, -2)
        grad_bias = rows.sum(0) if ctx.needs_input_grad[2] else None  # type: ignore[attr-defined]
        grad_x = onednn_linear(grad, weight.t(), None)
        # The gradient of the weight is as fast with MKL.
        return grad_x, rows.t() @ x.flatten(0, -2), grad_bias


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b for `x` (..., in) with oneDNN, whose packed `weight` it also takes."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out
