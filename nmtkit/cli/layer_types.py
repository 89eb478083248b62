"""The layer types of Table 1, and how long one takes: modules from (B, n, d) to (B, n, d).

Dimensions: B sentences of n positions, width d, kernels of k positions, neighbourhoods of r.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import window_of

HEAD_WIDTH = 64  # as in the paper's models: wider layers have more heads


class Sizes(NamedTuple):
    """The variables of Table 1."""

    n: int
    d: int
    k: int
    r: int


class LayerType(NamedTuple):
    """A row of Table 1, and what builds such a layer."""

    layer: str
    complexity: str
    sequential: str  # minimum number of sequential operations
    path: str  # maximum path length between two positions
    build: Callable[[Sizes], nn.Module]


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
        return super().forward(nn.functional.pad(x.mT, (self.kernel_size[0] - 1, 0))).mT


LAYER_TYPES = [
    LayerType("self-attention", "n² d", "O(1)", "O(1)", lambda _: Attention()),
    LayerType(
        *("recurrent (LSTM)", "n d²", "O(n)", "O(n)"),
        lambda s: Recurrence(s.d, s.d, batch_first=True),
    ),
    LayerType(
        "convolutional", "k n d²", "O(1)", "O(log_k n)", lambda s: Convolution(s.d, s.d, s.k)
    ),
    LayerType("self-attention, restricted", "r n d", "O(1)", "O(n / r)", lambda s: Attention(s.r)),
]


def seconds_of(
    kind: LayerType, sizes: Sizes, n_sentences: int, device: torch.device, limit: float
) -> float:
    """Return the time of a layer's fastest forward and backward pass.

    One is not timed; then there are at least two, and as many as begin in `limit` seconds.
    """
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    layer = kind.build(sizes).to(device, dtype)
    shape = n_sentences, sizes.n, sizes.d
    x = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
    grad, inputs = torch.randn_like(x), [x, *layer.parameters()]
    taken: list[float] = []
    while len(taken) < 3 or sum(taken[1:]) < limit:
        begin = time.perf_counter()
        torch.autograd.grad(layer(x), inputs, grad)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begin)
    return min(taken[1:])
