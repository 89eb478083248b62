"""Packed sentences: laid end to end in one row of tokens, with offsets and no padding.

Everything position-wise runs on the row. Only attention sees sentences, through its padded view.
Dimensions: T tokens, N sentences, L the longest of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


@dataclass(frozen=True)
class Layout:
    """Where each sentence of a packed row begins and ends."""

    cu_seqlens: Tensor  # (N + 1,) int64: sentence n is row[cu_seqlens[n] : cu_seqlens[n + 1]]
    max_seqlen: int  # L

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | Tensor) -> "Layout":
        """Lay out sentences of these lengths (each at least 1)."""
        sizes = torch.as_tensor(lengths, dtype=torch.int64)
        cu_seqlens = torch.zeros(len(sizes) + 1, dtype=torch.int64)
        torch.cumsum(sizes, 0, out=cu_seqlens[1:])
        return cls(cu_seqlens, int(sizes.max()))

    def to(self, device: torch.device) -> "Layout":
        """The same layout on another device."""
        return Layout(self.cu_seqlens.to(device), self.max_seqlen)

    @cached_property
    def lengths(self) -> Tensor:
        """(N,) tokens of each sentence."""
        return self.cu_seqlens.diff()

    @cached_property
    def _sentence(self) -> Tensor:
        """(T,) the sentence of each token."""
        return torch.repeat_interleave(self.lengths)

    @cached_property
    def positions(self) -> Tensor:
        """(T,) the place of each token in its sentence, from 0."""
        tokens = torch.arange(len(self._sentence), device=self.cu_seqlens.device)
        return tokens - self.cu_seqlens[self._sentence]

    @cached_property
    def mask(self) -> Tensor:
        """(N, L) True where the padded view holds a token."""
        places = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        return places < self.lengths[:, None]

    @cached_property
    def row_of_padded(self) -> Tensor:
        """(N * L,) for each place of the padded view its token, past the end the last one again."""
        places = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        within = torch.minimum(places, self.lengths[:, None] - 1)
        return (self.cu_seqlens[:-1, None] + within).flatten()

    @cached_property
    def padded_of_row(self) -> Tensor:
        """(T,) for each token its place in the flattened padded view."""
        return self._sentence * self.max_seqlen + self.positions


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, row: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout  # type: ignore[attr-defined]
        return row.index_select(0, layout.row_of_padded)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        # A gather, where autograd's own backward of index_select would scatter-add. It may leave
        # the places without a token out, because attention gives them no gradient: masked as keys,
        # dropped by `unpad` as queries.
        layout: Layout = ctx.layout  # type: ignore[attr-defined]
        return grad.index_select(0, layout.padded_of_row), None


class _Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, padded: Tensor, layout: Layout) -> Tensor:
        ctx.layout = layout  # type: ignore[attr-defined]
        return padded.index_select(0, layout.padded_of_row)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, None]:
        layout: Layout = ctx.layout  # type: ignore[attr-defined]
        padded = grad.new_zeros(layout.mask.numel(), *grad.shape[1:])
        return padded.index_copy_(0, layout.padded_of_row, grad), None


def pad(row: Tensor, layout: Layout) -> Tensor:
    """Turn a packed row (T, D) into its padded view (N, L, D).

    Places past a sentence's end repeat its last token.
    """
    padded: Tensor = _Pad.apply(row, layout)  # type: ignore[no-untyped-call]
    return torch.unflatten(padded, 0, layout.mask.shape)


def unpad(padded: Tensor, layout: Layout) -> Tensor:
    """Turn a padded view (N, L, D) back into the packed row (T, D)."""
    row: Tensor = _Unpad.apply(padded.flatten(0, 1), layout)  # type: ignore[no-untyped-call]
    return row
