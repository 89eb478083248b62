"""Packed sentences: laid end to end in one row of tokens, with offsets and no padding.

Everything position-wise runs on the row. Only attention sees sentences, in rectangles of a few of
like length.
Dimensions: T tokens, N sentences, L the longest of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where each sentence of a packed row begins and ends."""

    cu_seqlens: Tensor  # (N + 1,) int64: sentence n is row[cu_seqlens[n] : cu_seqlens[n + 1]]
    max_seqlen: int  # L
    cuts: tuple[int, ...] = ()  # the sentences, after the first, that begin a new rectangle

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | Tensor, cuts: tuple[int, ...] = ()) -> "Layout":
        """Lay out sentences of these lengths (each at least 1)."""
        sizes = torch.as_tensor(lengths, dtype=torch.int64)
        cu_seqlens = torch.zeros(len(sizes) + 1, dtype=torch.int64)
        torch.cumsum(sizes, 0, out=cu_seqlens[1:])
        return cls(cu_seqlens, int(sizes.max()), cuts)

    def to(self, device: torch.device) -> "Layout":
        """The same layout on another device."""
        return Layout(self.cu_seqlens.to(device), self.max_seqlen, self.cuts)

    @cached_property
    def n_tokens(self) -> int:
        """T."""
        return int(self.cu_seqlens[-1])

    @cached_property
    def rectangles(self) -> list["Rectangle"]:
        """Runs of sentences that attention takes at a time: those from one cut to the next."""
        bounds = [0, *self.cuts, len(self.lengths)]
        return [Rectangle.of(self.cu_seqlens[a : b + 1]) for a, b in pairwise(bounds)]

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
        """(N, L) True where a sentence, padded to L, has a token."""
        places = torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        return places < self.lengths[:, None]


@dataclass(frozen=True)
class Rectangle:
    """Neighbouring sentences of a packed row, padded to the longest of them, head by head.

    Dimensions: n sentences with t tokens together, L the longest; H heads of width K.
    """

    tokens: slice  # which of the row
    rows: Tensor  # (n, L) the token of each place; past a sentence's end its last one again
    mask: Tensor  # (n, L) True where a place is a token
    is_full: bool  # whether all are
    _indices: dict[tuple[int, ...], Tensor] = field(default_factory=dict)  # the same for all layers

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> "Rectangle":
        """Take the sentences that begin and end at these offsets (n + 1,)."""
        lengths = cu_seqlens.diff()
        first, stop, longest = torch.stack([cu_seqlens[0], cu_seqlens[-1], lengths.max()]).tolist()
        places = torch.arange(longest, device=cu_seqlens.device)
        rows = cu_seqlens[:-1, None] + torch.minimum(places, lengths[:, None] - 1)
        is_full = longest * len(lengths) == stop - first
        return cls(slice(first, stop), rows, places < lengths[:, None], is_full)

    def pad(self, row: Tensor) -> Tensor:
        """Turn the packed `row` (T, H, K) into (n H, L, K)."""
        heads, width = row.shape[1:]
        if row.stride(0) % width or row.stride()[1:] != (width, 1):
            row = row.contiguous()
        # A merged projection has the heads of others between two tokens of this one: seen as a
        # list of vectors (K,), a token's heads begin `step` after those of the token before it.
        step = row.stride(0) // width
        vectors = row.as_strided((step * (len(row) - 1) + heads, width), (width, 1))
        padded = vectors.index_select(0, self._vectors_of_places(heads, step))
        return padded.view(-1, self.rows.shape[1], width)

    def unpad(self, padded: Tensor, row: Tensor) -> None:
        """Write `padded` (n H, L, K) to the packed `row` (T, H, K), which is contiguous."""
        heads, width = row.shape[1:]
        places = self._places_of_vectors(heads)
        out = row[self.tokens].view(-1, width)
        torch.index_select(padded.view(-1, width), 0, places, out=out)

    def _vectors_of_places(self, heads: int, step: int) -> Tensor:
        """(n H L,) for each place of each head the vector that is its."""
        if (heads, step) not in self._indices:
            of_heads = torch.arange(heads, device=self.rows.device)[:, None]
            self._indices[heads, step] = (self.rows[:, None] * step + of_heads).flatten()
        return self._indices[heads, step]

    def _places_of_vectors(self, heads: int) -> Tensor:
        """(t H,) for each head of each token its place among the n H L."""
        if (heads,) not in self._indices:
            n, longest = self.rows.shape
            places = torch.arange(n * heads * longest, device=self.rows.device)
            by_token = places.view(n, heads, longest).transpose(1, 2)
            self._indices[heads,] = by_token[self.mask].flatten()
        return self._indices[heads,]
