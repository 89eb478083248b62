"""The layer types of Table 1, and how long one takes: functions from (n, d) to (n, d).

Dimensions: a sentence of n positions, width d.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import window_of

LAYER_TYPES = (
    "self-attention",
    "recurrent (LSTM)",
    "convolutional",
    "self-attention, restricted",
)
HEAD_WIDTH = 64  # as in the paper's models: wider layers have more heads
KERNEL = 3  # positions of a convolution
NEIGHBOURHOOD = 64  # positions that restricted self-attention sees

Layer = tuple[Callable[[Tensor], Tensor], Sequence[Tensor]]  # and its parameters


def layer_of(name: str, x: Tensor) -> Layer:
    """Return a layer for inputs like `x` (n, d). Attention has no projections: Equation 1."""
    n, d = x.shape
    if name == "recurrent (LSTM)":
        lstm = nn.LSTM(d, d).to(x)
        return lambda x: lstm(x)[0], [*lstm.parameters()]
    if name == "convolutional":
        convolution = nn.Conv1d(d, d, KERNEL, padding="same").to(x)
        return lambda x: convolution(x.mT).mT, [*convolution.parameters()]
    layout = PackedLayout.of_lengths([n]).to(x.device)
    neighbourhood = None if name == "self-attention" else NEIGHBOURHOOD
    mask = PackedMask(layout, layout, window_of(causal=False, neighbourhood=neighbourhood))

    def attention(x: Tensor) -> Tensor:
        heads = x.reshape(n, -1, HEAD_WIDTH).transpose(0, 1)
        return fast_attention(heads, heads, heads, mask).transpose(0, 1).reshape(n, d)

    return attention, []


def seconds_of(name: str, n: int, d: int, device: torch.device, limit: float) -> float:
    """Return the time of the fastest forward and backward pass over one sentence.

    One pass is not timed; then there are at least two, and as many as begin in `limit` seconds.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    x = torch.randn(n, d, device=device, dtype=dtype, requires_grad=True)
    layer, parameters = layer_of(name, x)
    grad, taken = torch.randn_like(x), list[float]()
    while len(taken) < 3 or sum(taken[1:]) < limit:
        begin = time.perf_counter()
        torch.autograd.grad(layer(x), [x, *parameters], grad)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begin)
    return min(taken[1:])
