"""Packed sequences, and the padded rectangles that attention takes out of them.

Dimensions: T tokens, N sentences, L tokens in the longest sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from nmtkit.model.attention import Window

MIN_BLOCK = 32  # queries of a long sentence that look at the same keys


@dataclass(frozen=True)
class PackedLayout:
    """A packed sequence: sentences laid end to end, grouped into rectangles of like lengths."""

    cu_seqlens: Tensor  # (N + 1,) int32: sentence n is tokens cu_seqlens[n] to cu_seqlens[n + 1]
    positions: Tensor  # (T,) int32: index of each token in its sentence
    max_seqlen: int  # tokens of the longest sentence, or more
    cuts: tuple[int, ...] = ()  # sentences, after the first, that start a new rectangle
    _bands: dict[tuple[int, int], "Bands"] = field(default_factory=dict)  # shared by all layers

    @classmethod
    def of_lengths(
        cls, lengths: Sequence[int] | Tensor, cuts: tuple[int, ...] = ()
    ) -> "PackedLayout":
        """Return the layout of sentences with the given lengths, each at least 1."""
        sizes = torch.as_tensor(lengths, dtype=torch.int32)
        cu_seqlens = torch.zeros(len(sizes) + 1, dtype=torch.int32)
        torch.cumsum(sizes, 0, dtype=torch.int32, out=cu_seqlens[1:])
        starts = cu_seqlens[:-1].repeat_interleave(sizes)
        positions = torch.arange(len(starts), dtype=torch.int32) - starts
        return cls(cu_seqlens, positions, int(sizes.max()), cuts)

    @property
    def lengths(self) -> Tensor:
        """Return the number of tokens of each sentence (N,)."""
        return self.cu_seqlens.diff()

    @property
    def sentences(self) -> Tensor:
        """Return the number of the sentence of each token (T,)."""
        numbers = torch.arange(len(self.lengths), device=self.cu_seqlens.device)
        return numbers.repeat_interleave(self.lengths)

    def to(self, device: torch.device) -> "PackedLayout":
        """Return the same layout on another device."""
        tensors = self.cu_seqlens.to(device), self.positions.to(device)
        return PackedLayout(*tensors, self.max_seqlen, self.cuts)

    @cached_property
    def rectangles(self) -> list["Rectangle"]:
        """Return the groups of sentences between cuts, which attention processes one at a time."""
        bounds = [0, *self.cuts, len(self.cu_seqlens) - 1]
        return [Rectangle.of(self.cu_seqlens[a : b + 1]) for a, b in pairwise(bounds)]

    def bands(self, before: int, after: int) -> "Bands":
        """Return rectangles of queries, each with the `before` + 1 + `after` keys around a query.

        Long sentences are cut into blocks, so that the cost is proportional to the length.
        """
        if (before, after) not in self._bands:
            block = max(MIN_BLOCK, before + after)
            long = 2 * (block + before + after)  # blocks cost less from here on
            self._bands[before, after] = [
                _band(each, block, before, after) if each.rows.shape[1] > long else (each, each)
                for each in self.rectangles
            ]
        return self._bands[before, after]


@dataclass(frozen=True)
class Rectangle:
    """Adjacent sentences of a packed row, padded to the longest of them, separately for each head.

    Dimensions: n sentences with t tokens in total, L tokens in the longest; H heads of width K.
    """

    tokens: slice  # of the row
    rows: Tensor  # (n, L) index of each token in the row; padding repeats the last token
    mask: Tensor  # (n, L) True for tokens, False for padding
    is_full: bool  # True if there is no padding
    cu_seqlens: Tensor  # (n + 1,) int32: where each sentence begins and ends in the row
    # The keys of a block of queries begin this many positions before its first query.
    n_before: int = 0
    _indices: dict[tuple[int, ...], Tensor] = field(default_factory=dict)  # shared by all layers

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> "Rectangle":
        """Return the rectangle of the sentences between the offsets `cu_seqlens` (n + 1,)."""
        lengths = cu_seqlens.diff()
        first, stop, longest = torch.stack([cu_seqlens[0], cu_seqlens[-1], lengths.max()]).tolist()
        columns = torch.arange(longest, device=cu_seqlens.device)
        rows = cu_seqlens[:-1, None] + torch.minimum(columns, lengths[:, None] - 1)
        is_full = longest * len(lengths) == stop - first
        return cls(slice(first, stop), rows, columns < lengths[:, None], is_full, cu_seqlens)

    def pad(self, row: Tensor) -> Tensor:
        """Gather the packed `row` (T, H, K) into a padded tensor (n H, L, K)."""
        heads, width = row.shape[1:]
        if row.stride(0) % width or row.stride()[1:] != (width, 1):
            row = row.contiguous()
        # In a merged projection, other heads lie between two tokens of this one: as a list of
        # vectors (K,), the heads of successive tokens start `step` vectors apart.
        step = row.stride(0) // width
        vectors = row.as_strided((step * (len(row) - 1) + heads, width), (width, 1))
        padded = vectors.index_select(0, self._vectors_of_places(heads, step))
        return padded.view(-1, self.rows.shape[1], width)

    def unpad(self, padded: Tensor, row: Tensor) -> None:
        """Scatter `padded` (n H, L, K) to the packed `row` (T, H, K), which must be contiguous.

        A token that stands in several blocks gets their sum. Its padding must be zero.
        """
        heads, width = row.shape[1:]
        if self.n_before:
            row[self.tokens] = 0.0
            vectors = self._vectors_of_places(heads, heads)
            row.view(-1, width).index_add_(0, vectors, padded.view(-1, width))
            return
        out = row[self.tokens].view(-1, width)
        vectors = self._places_of_vectors(heads)
        torch.index_select(padded.view(-1, width), 0, vectors, out=out)

    def _vectors_of_places(self, heads: int, step: int) -> Tensor:
        """Return the index (n H L,) of the vector for each padded position."""
        if (heads, step) not in self._indices:
            of_heads = torch.arange(heads, device=self.rows.device)[:, None]
            self._indices[heads, step] = (self.rows[:, None] * step + of_heads).flatten()
        return self._indices[heads, step]

    def _places_of_vectors(self, heads: int) -> Tensor:
        """Return the padded position (t H,) of each head of each token."""
        if (heads,) not in self._indices:
            n, longest = self.rows.shape
            places = torch.arange(n * heads * longest, device=self.rows.device)
            by_token = places.view(n, heads, longest).mT
            self._indices[heads,] = by_token[self.mask].flatten()
        return self._indices[heads,]


Bands = list[tuple[Rectangle, Rectangle]]  # queries, and keys


@dataclass(frozen=True)
class PackedMask:
    """What `visible` returns, for layouts that have the same sentences and cuts."""

    queries: PackedLayout
    keys: PackedLayout
    window: Window

    @property
    def rectangles(self) -> Bands:
        """Return rectangles of queries, each with the rectangle of the keys that it needs."""
        before, after = self.window
        if before is None or after is None:
            return list(zip(self.queries.rectangles, self.keys.rectangles, strict=True))
        return self.queries.bands(before, after)  # self-attention: both have one layout


def _band(sentences: Rectangle, block: int, before: int, after: int) -> tuple[Rectangle, Rectangle]:
    """Cut sentences into blocks of queries; return these and the keys that each of them sees."""
    begins, ends = sentences.cu_seqlens[:-1], sentences.cu_seqlens[1:]
    n_blocks = (ends - begins + block - 1) // block
    begins, ends = begins.repeat_interleave(n_blocks), ends.repeat_interleave(n_blocks)
    earlier = (n_blocks.cumsum(0) - n_blocks).repeat_interleave(n_blocks)  # of other sentences
    numbers = torch.arange(len(begins), device=begins.device) - earlier
    starts = begins + block * numbers.int()
    queries = Rectangle.of(torch.cat([starts, ends[-1:]]))
    near = starts[:, None] + torch.arange(-before, block + after, device=starts.device)
    mask = (near >= begins[:, None]) & (near < ends[:, None])
    rows = near.clamp(begins[:, None], ends[:, None] - 1)
    return queries, replace(
        queries, rows=rows, mask=mask, is_full=False, n_before=before, _indices={}
    )
