"""Packed sentences: laid end to end in one row of tokens, with offsets and no padding.

Everything position-wise runs on the row. Only attention sees sentences: by their offsets where a
GPU has a kernel for that, else in rectangles of a few of like length.
Dimensions: T tokens, N sentences, L the longest of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

# A row of constant shape has room for sentences of this mean length, in tokens: two words and the
# end symbol, so that also an update of very short pairs is one row.
SHORT_MEAN = 3


@dataclass(frozen=True)
class Capacity:
    """One shape for all packed rows, where a device compiles for shapes.

    Behind the real sentences of a row stand `n_fillers` made-up ones, each of a token or more, then
    empty ones.
    """

    n_tokens: int
    n_sentences: int
    n_fillers: int
    max_seqlen: int  # of any sentence

    @classmethod
    def of(cls, max_tokens: int, max_seqlen: int) -> "Capacity":
        """Take micro-batches of at most `max_tokens`, sentences of at most `max_seqlen` (over 1).

        Even without a real sentence the fillers are no longer than that.
        """
        n_fillers = -(-max_tokens // (max_seqlen - 1))
        n_sentences = -(-max_tokens // SHORT_MEAN) + n_fillers
        return cls(max_tokens + n_fillers, n_sentences, n_fillers, max_seqlen)

    @property
    def most_sentences(self) -> int:
        """How many real ones a row can have."""
        return self.n_sentences - self.n_fillers

    def fill(self, lengths: Tensor) -> Tensor:
        """Append to `lengths` (N,) those of the fillers and of the empty sentences."""
        n_left = self.n_tokens - int(lengths.sum())
        each, more = divmod(n_left, self.n_fillers)
        fillers = torch.full((self.n_fillers,), each, dtype=lengths.dtype)
        fillers[:more] += 1
        n_empty = self.most_sentences - len(lengths)
        return torch.cat([lengths, fillers, lengths.new_zeros(n_empty)])


@dataclass(frozen=True)
class Layout:
    """Where each sentence of a packed row begins and ends."""

    cu_seqlens: Tensor  # (N + 1,) int32: sentence n is row[cu_seqlens[n] : cu_seqlens[n + 1]]
    positions: Tensor  # (T,) int32, the place of each token in its sentence, from 0
    max_seqlen: int  # L, or more
    cuts: tuple[int, ...] = ()  # the sentences, after the first, that begin a new rectangle
    n_empty: int = 0  # the last sentences, which have no tokens

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | Tensor, cuts: tuple[int, ...] = ()) -> "Layout":
        """Lay out sentences of these lengths (each at least 1)."""
        sizes = torch.as_tensor(lengths, dtype=torch.int32)
        return cls._of(sizes, int(sizes.max()), cuts, n_empty=0)

    @classmethod
    def filled(cls, lengths: Tensor, cuts: tuple[int, ...], capacity: Capacity) -> "Layout":
        """Lay out sentences of these lengths in a row of constant shape."""
        sizes = capacity.fill(lengths.int())
        n_empty = capacity.most_sentences - len(lengths)
        return cls._of(sizes, capacity.max_seqlen, (*cuts, len(lengths)), n_empty)

    @classmethod
    def _of(cls, sizes: Tensor, max_seqlen: int, cuts: tuple[int, ...], n_empty: int) -> "Layout":
        cu_seqlens = torch.zeros(len(sizes) + 1, dtype=torch.int32)
        torch.cumsum(sizes, 0, dtype=torch.int32, out=cu_seqlens[1:])
        tokens = torch.arange(int(cu_seqlens[-1]), dtype=torch.int32)
        positions = tokens - cu_seqlens[:-1].repeat_interleave(sizes)
        return cls(cu_seqlens, positions, max_seqlen, cuts, n_empty)

    def to(self, device: torch.device) -> "Layout":
        """The same layout on another device."""
        cu_seqlens, positions = send(self.cu_seqlens, device), send(self.positions, device)
        return Layout(cu_seqlens, positions, self.max_seqlen, self.cuts, self.n_empty)

    @property
    def n_tokens(self) -> int:
        """T."""
        return len(self.positions)

    @cached_property
    def rectangles(self) -> list["Rectangle"]:
        """Runs of sentences that attention takes at a time: those from one cut to the next."""
        bounds = [0, *self.cuts, len(self.cu_seqlens) - 1 - self.n_empty]
        return [Rectangle.of(self.cu_seqlens[a : b + 1]) for a, b in pairwise(bounds)]

    @cached_property
    def lengths(self) -> Tensor:
        """(N,) tokens of each sentence."""
        return self.cu_seqlens.diff()


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


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to `device`; to a GPU from pinned memory, so that the host need not wait for it."""
    if device.type != "cuda":
        return tensor.to(device)
    with torch.cuda.device(device):  # another thread than the main one would use the first GPU too
        return tensor.pin_memory().to(device, non_blocking=True)
