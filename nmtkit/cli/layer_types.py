"""The layer types of Table 1: modules from (B, n, d) to (B, n, d), and how long one takes.

Dimensions: B sentences of n positions, width d.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import window_of

HEAD_WIDTH = 64  # as in the paper's models: wider layers have more heads
KERNEL = 3  # positions of a convolution
NEIGHBOURHOOD = 64  # positions that restricted self-attention sees


class Attention(nn.Module):
    """Equation 1, or a neighbourhood of it, without projections: what Table 1 counts."""

    def __init__(self, neighbourhood: int | None = None) -> None:
        super().__init__()
        self.window = window_of(causal=False, neighbourhood=neighbourhood)
        self._mask: PackedMask | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Let each position of `x` (B, n, d) attend to its sentence."""
        n_sentences, n, _ = x.shape
        if self._mask is None:
            layout = PackedLayout.of_lengths([n] * n_sentences).to(x.device)
            self._mask = PackedMask(layout, layout, self.window)
        heads = x.reshape(n_sentences * n, -1, HEAD_WIDTH).transpose(0, 1)
        attended = fast_attention(heads, heads, heads, self._mask)
        return attended.transpose(0, 1).reshape(x.shape)


class Recurrence(nn.LSTM):
    """torch's LSTM, from the first position to the last."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return the states (B, n, d) after each position of `x` (B, n, d)."""
        return super().forward(x)[0]


class Convolution(nn.Conv1d):
    """A convolution over positions whose kernel ends at each position, as in a decoder."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `x` (B, n, d)."""
        return super().forward(nn.functional.pad(x.mT, (KERNEL - 1, 0))).mT


# The rows of Table 1, with what builds such a layer of width d.
LAYER_TYPES: dict[str, Callable[[int], nn.Module]] = {
    "self-attention": lambda _: Attention(),
    "recurrent (LSTM)": lambda d: Recurrence(d, d, batch_first=True),
    "convolutional": lambda d: Convolution(d, d, KERNEL),
    "self-attention, restricted": lambda _: Attention(NEIGHBOURHOOD),
}


def seconds_of(layer: str, n: int, d: int, device: torch.device, limit: float) -> float:
    """Return the time of the fastest forward and backward pass over one sentence.

    One pass is not timed; then there are at least two, and as many as begin in `limit` seconds.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    module = LAYER_TYPES[layer](d).to(device, dtype)
    x = torch.randn(1, n, d, device=device, dtype=dtype, requires_grad=True)
    grad, inputs = torch.randn_like(x), [x, *module.parameters()]
    taken: list[float] = []
    while len(taken) < 3 or sum(taken[1:]) < limit:
        begin = time.perf_counter()
        torch.autograd.grad(module(x), inputs, grad)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begin)
    return min(taken[1:])
