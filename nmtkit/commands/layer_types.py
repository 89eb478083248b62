"""The layer types of Table 1, to be measured.

Dimensions: B sentences of n positions, width d, kernels of k positions, neighbourhoods of r.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import attention, visible, window_of

HEAD_WIDTH = 64  # as in the paper's models: wider layers have more heads


class Sizes(NamedTuple):
    """The variables of Table 1."""

    n: int
    d: int
    k: int
    r: int


@dataclass(frozen=True)
class LayerType:
    """A row of Table 1."""

    name: str
    complexity: str  # as Table 1 has it
    sequential: str  # minimum number of sequential operations
    path: str  # maximum path length between two positions
    count: Callable[[Sizes], int]  # what `complexity` says
    flops: Callable[[Sizes], int]  # of the matrix products of a forward pass over one sentence
    layer: Callable[[Sizes], nn.Module]  # (B, n, d) to (B, n, d)
    # What all positions of a sentence compute at once, (n, d) to (n, d), in plain operations. The
    # second argument is the number of steps before.
    step: Callable[[Sizes], Callable[[Tensor, int], Tensor]]
    grows_with: str = "nd"  # the variables in `complexity`
    loop: Callable[[Sizes], Callable[[Tensor], Tensor]] | None = None  # the same, step by step

    def whole(self, sizes: Sizes) -> Callable[[Tensor], Tensor]:
        """Return what computes a whole layer in plain operations, (n, d) to (n, d)."""
        if self.loop is not None:
            return self.loop(sizes)
        step = self.step(sizes)
        return lambda x: step(x, 0)


class Attention(nn.Module):
    """Equation 1, or a neighbourhood of it, without projections: what Table 1 counts."""

    def __init__(self, neighbourhood: int | None = None) -> None:
        super().__init__()
        self.window = window_of(causal=False, neighbourhood=neighbourhood)
        self._mask: PackedMask | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Let each position of `x` (B, n, d) attend to its sentence."""
        return self.attend(x, x, x)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Apply equation 1 to queries, keys and values (B, n, d)."""
        n_sentences, n, _ = q.shape
        if self._mask is None:
            layout = PackedLayout.of_lengths([n] * n_sentences).to(q.device)
            self._mask = PackedMask(layout, layout, self.window)
        q, k, v = (
            each.reshape(n_sentences * n, -1, HEAD_WIDTH).transpose(0, 1) for each in (q, k, v)
        )
        attended = fast_attention(q, k, v, self._mask)
        return attended.transpose(0, 1).reshape(n_sentences, n, -1)


class ProjectedAttention(Attention):
    """Self-attention with its four projections, as the model has it."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Let each position of `x` (B, n, d) attend to its sentence."""
        return self.out(self.attend(*torch.chunk(self.qkv(x), 3, -1)))  # type: ignore[no-any-return]


class Convolution(nn.Module):
    """A convolution over positions whose kernel ends at each position, as in a decoder."""

    def __init__(self, sizes: Sizes, *, dilation: int = 1, is_separable: bool = False) -> None:
        super().__init__()
        d, groups = sizes.d, sizes.d if is_separable else 1
        self.layers = nn.Sequential(
            nn.ConstantPad1d(((sizes.k - 1) * dilation, 0), 0.0),
            nn.Conv1d(d, d, sizes.k, dilation=dilation, groups=groups),
        )
        if is_separable:
            self.layers.append(nn.Conv1d(d, d, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve `x` (B, n, d)."""
        return self.layers(x.mT).mT  # type: ignore[no-any-return]


class Recurrence(nn.Module):
    """torch's LSTM, from the first position to the last."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d, d, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the states (B, n, d) after each position of `x` (B, n, d)."""
        return self.lstm(x)[0]  # type: ignore[no-any-return]


def _loop(sizes: Sizes) -> Callable[[Tensor], Tensor]:
    """Do what `Recurrence` does with one cell, from the first position to the last."""
    cell = nn.LSTMCell(sizes.d, sizes.d)

    def run(x: Tensor) -> Tensor:
        outputs = []
        hidden, memory = x.new_zeros(2, 1, sizes.d)
        for at_position in torch.split(x, 1):
            hidden, memory = cell(at_position, (hidden, memory))
            outputs.append(hidden)
        return torch.cat(outputs)

    return run


def _attend(_: Sizes) -> Callable[[Tensor, int], Tensor]:
    return lambda x, _: attention(x, x, x, None)


def _attend_nearby(sizes: Sizes) -> Callable[[Tensor, int], Tensor]:
    sentence = PackedLayout.of_lengths([sizes.n])
    near = visible(sentence, sentence, window_of(causal=False, neighbourhood=sizes.r))
    return lambda x, _: attention(x, x, x, near)


def _recur(sizes: Sizes) -> Callable[[Tensor, int], Tensor]:
    """One step is that of all cells at once: each position sees the state of the one before it."""
    cell = nn.LSTMCell(sizes.d, sizes.d)

    def step(x: Tensor, _: int) -> Tensor:
        before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
        return cell.to(x.dtype)(x, (before, torch.zeros_like(x)))[0]  # type: ignore[no-any-return]

    return step


def _convolve(
    layer: Callable[[Sizes, int], Convolution],
) -> Callable[[Sizes], Callable[[Tensor, int], Tensor]]:
    """Return the step of a convolution whose dilation may depend on the number of steps before."""

    def build(sizes: Sizes) -> Callable[[Tensor, int], Tensor]:
        return lambda x, number: layer(sizes, number).to(x.dtype)(x[None])[0]

    return build


LAYER_TYPES = (
    LayerType(
        "self-attention",
        *("n² d", "O(1)", "O(1)"),
        count=lambda s: s.n**2 * s.d,
        flops=lambda s: 4 * s.n**2 * s.d,
        layer=lambda _: Attention(),
        step=_attend,
    ),
    LayerType(
        "self-attention, projected",
        *("n² d + n d²", "O(1)", "O(1)"),
        count=lambda s: s.n**2 * s.d + s.n * s.d**2,
        flops=lambda s: 4 * s.n**2 * s.d + 8 * s.n * s.d**2,
        layer=lambda s: ProjectedAttention(s.d),
        step=_attend,
    ),
    LayerType(
        "recurrent (LSTM)",
        *("n d²", "O(n)", "O(n)"),
        count=lambda s: s.n * s.d**2,
        flops=lambda s: 16 * s.n * s.d**2,  # four gates, of the input and of the state
        layer=lambda s: Recurrence(s.d),
        step=_recur,
        loop=_loop,
    ),
    LayerType(
        "convolutional",
        *("k n d²", "O(1)", "O(n / k)"),
        count=lambda s: s.k * s.n * s.d**2,
        flops=lambda s: 2 * s.k * s.n * s.d**2,
        layer=Convolution,
        step=_convolve(lambda s, _: Convolution(s)),
        grows_with="ndk",
    ),
    LayerType(
        "convolutional, dilated",
        *("k n d²", "O(1)", "O(log_k n)"),
        count=lambda s: s.k * s.n * s.d**2,
        flops=lambda s: 2 * s.k * s.n * s.d**2,
        layer=lambda s: Convolution(s, dilation=s.k),
        step=_convolve(lambda s, number: Convolution(s, dilation=s.k**number)),
        grows_with="ndk",
    ),
    LayerType(
        "convolutional, separable",
        *("k n d + n d²", "O(1)", "O(n / k)"),
        count=lambda s: s.k * s.n * s.d + s.n * s.d**2,
        flops=lambda s: 2 * s.k * s.n * s.d + 2 * s.n * s.d**2,
        layer=lambda s: Convolution(s, is_separable=True),
        step=_convolve(lambda s, _: Convolution(s, is_separable=True)),
        grows_with="ndk",
    ),
    LayerType(
        "self-attention, restricted",
        *("r n d", "O(1)", "O(n / r)"),
        count=lambda s: s.r * s.n * s.d,
        flops=lambda s: 4 * s.r * s.n * s.d,
        layer=lambda s: Attention(s.r),
        step=_attend_nearby,
        grows_with="ndr",
    ),
)
