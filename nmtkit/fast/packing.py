"""Packed sequences, and the padded batches that attention computes on.

A packed sequence holds sentences end to end, without padding. Attention must keep the sentences
apart, and does so in padded batches of sentences of similar lengths.

Dimensions: T tokens, N sentences, L tokens in the longest sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from nmtkit.model.attention import Window

MIN_BLOCK = 32  # minimum number of queries of a long sentence that share their keys


@dataclass(frozen=True)
class PackedLayout:
    """The sentences of a packed sequence, in groups that attention pads together."""

    cu_seqlens: Tensor  # (N + 1,) int32: sentence n is tokens cu_seqlens[n] to cu_seqlens[n + 1]
    positions: Tensor  # (T,) int32: index of each token in its sentence
    max_seqlen: int  # tokens of the longest sentence, or more
    cuts: tuple[int, ...] = ()  # sentences, after the first, that start a new padded batch
    # Padded batches of local attention, by the window. All layers share them.
    _local_batches: dict[tuple[int, int], "BatchPairs"] = field(default_factory=dict)

    @classmethod
    def from_lengths(
        cls, lengths: Sequence[int] | Tensor, cuts: tuple[int, ...] = ()
    ) -> "PackedLayout":
        """Return the layout of sentences with the given lengths, all of them at least 1."""
        sizes = torch.as_tensor(lengths, dtype=torch.int32)
        cu_seqlens = torch.zeros(len(sizes) + 1, dtype=torch.int32)
        torch.cumsum(sizes, 0, dtype=torch.int32, out=cu_seqlens[1:])
        starts = cu_seqlens[:-1].repeat_interleave(sizes)
        positions = torch.arange(len(starts), dtype=torch.int32) - starts
        return cls(cu_seqlens, positions, int(sizes.max()), cuts)

    @property
    def lengths(self) -> Tensor:
        """Return the lengths of the sentences (N,)."""
        return self.cu_seqlens.diff()

    @property
    def sentences(self) -> Tensor:
        """Return the sentence numbers of the tokens (T,)."""
        numbers = torch.arange(len(self.lengths), device=self.cu_seqlens.device)
        return numbers.repeat_interleave(self.lengths)

    def to(self, device: torch.device) -> "PackedLayout":
        """Return the same layout on another device."""
        return PackedLayout(
            self.cu_seqlens.to(device), self.positions.to(device), self.max_seqlen, self.cuts
        )

    @cached_property
    def padded_batches(self) -> list["PaddedBatch"]:
        """Return the groups of sentences between cuts, which attention processes one at a time."""
        bounds = [0, *self.cuts, len(self.cu_seqlens) - 1]
        return [PaddedBatch.of(self.cu_seqlens[a : b + 1]) for a, b in pairwise(bounds)]

    def local_batches(self, before: int, after: int) -> "BatchPairs":
        """Return the padded batches of self-attention in a neighbourhood (section 4).

        Long sentences are cut into blocks of queries, so that the cost is proportional to the
        length.

        Args:
            before: Number of positions before its own that a query sees.
            after: Number of positions after its own that a query sees.

        Returns:
            Pairs of queries and keys; the keys include those around all queries.
        """
        if (before, after) not in self._local_batches:
            block = max(MIN_BLOCK, before + after)
            max_whole = 2 * (block + before + after)  # blocks cost less from here on
            pairs = []
            for batch in self.padded_batches:
                is_long = batch.indices.shape[1] > max_whole
                pairs.append(_blocks(batch, block, before, after) if is_long else (batch, batch))
            self._local_batches[before, after] = pairs
        return self._local_batches[before, after]


@dataclass(frozen=True)
class PaddedBatch:
    """Adjacent sentences of a packed sequence, padded to the longest of them, head by head.

    Dimensions: n sentences with t tokens in total, L tokens in the longest; H heads of width K.
    """

    tokens: slice  # of the packed sequence
    indices: Tensor  # (n, L): places in the packed sequence; padding repeats the last token
    mask: Tensor  # (n, L): True for tokens, False for padding
    is_full: bool  # True if there is no padding
    cu_seqlens: Tensor  # (n + 1,) int32: the bounds of the sentences in the packed sequence
    # The keys of a block of queries begin this many positions before its first query.
    n_before: int = 0
    # Index tensors for `pad` and `unpad`, by number of heads. All layers share them.
    _gather_indices: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> "PaddedBatch":
        """Return the padded batch of the sentences between the offsets `cu_seqlens` (n + 1,)."""
        lengths = cu_seqlens.diff()
        # One copy to the host instead of three.
        first, stop, longest = torch.stack([cu_seqlens[0], cu_seqlens[-1], lengths.max()]).tolist()
        columns = torch.arange(longest, device=cu_seqlens.device)
        indices = cu_seqlens[:-1, None] + torch.minimum(columns, lengths[:, None] - 1)
        is_full = longest * len(lengths) == stop - first
        return cls(slice(first, stop), indices, columns < lengths[:, None], is_full, cu_seqlens)

    def pad(self, packed: Tensor) -> Tensor:
        """Gather a packed tensor (T, H, K) into a padded one (n H, L, K)."""
        heads, width = packed.shape[1:]
        if packed.stride(0) % width or packed.stride()[1:] != (width, 1):
            packed = packed.contiguous()
        # In a merged projection, other heads lie between two tokens of this one: as a list of
        # vectors (K,), the heads of successive tokens start `step` vectors apart.
        step = packed.stride(0) // width
        vectors = packed.as_strided((step * (len(packed) - 1) + heads, width), (width, 1))
        padded = vectors.index_select(0, self._padded_to_packed(heads, step))
        return padded.view(-1, self.indices.shape[1], width)

    def unpad(self, padded: Tensor, packed: Tensor) -> None:
        """Scatter a padded tensor into a packed one.

        Args:
            padded: Values (n H, L, K). For blocks of keys, those of padding must be zero, and a
                token that is in several blocks gets their sum.
            packed: A contiguous tensor (T, H, K), whose values at these sentences are replaced.
        """
        heads, width = packed.shape[1:]
        if self.n_before:
            packed[self.tokens] = 0.0
            places = self._padded_to_packed(heads, heads)
            packed.view(-1, width).index_add_(0, places, padded.view(-1, width))
            return
        out = packed[self.tokens].view(-1, width)
        places = self._packed_to_padded(heads)
        torch.index_select(padded.view(-1, width), 0, places, out=out)

    def _padded_to_packed(self, heads: int, step: int) -> Tensor:
        """Return, for all padded places, the index of their vector in the packed tensor (n H L,).

        Args:
            heads: Number of heads H.
            step: Distance of two tokens in vectors, H or more.
        """
        if (heads, step) not in self._gather_indices:
            head_numbers = torch.arange(heads, device=self.indices.device)[:, None]
            places = (self.indices[:, None] * step + head_numbers).flatten()
            self._gather_indices[heads, step] = places
        return self._gather_indices[heads, step]

    def _packed_to_padded(self, heads: int) -> Tensor:
        """Return, for all heads of all tokens, their padded places (t H,)."""
        if (heads,) not in self._gather_indices:
            n, longest = self.indices.shape
            places = torch.arange(n * heads * longest, device=self.indices.device)
            by_token = places.view(n, heads, longest).mT
            self._gather_indices[heads,] = by_token[self.mask].flatten()
        return self._gather_indices[heads,]


BatchPairs = list[tuple[PaddedBatch, PaddedBatch]]  # queries, and the keys that they need


@dataclass(frozen=True)
class PackedMask:
    """The mask of two layouts that have the same sentences and cuts; see `visible`."""

    queries: PackedLayout
    keys: PackedLayout
    window: Window

    @property
    def padded_batches(self) -> BatchPairs:
        """Return padded batches of queries, and of the keys that they need."""
        before, after = self.window
        if before is None or after is None:
            return list(zip(self.queries.padded_batches, self.keys.padded_batches, strict=True))
        # Only self-attention has a neighbourhood, so that both sides have one layout.
        return self.queries.local_batches(before, after)


def _blocks(
    sentences: PaddedBatch, block: int, before: int, after: int
) -> tuple[PaddedBatch, PaddedBatch]:
    """Cut sentences into blocks of queries.

    Args:
        sentences: The sentences, whose numbers of blocks add up to M.
        block: Number of queries in a block.
        before: Number of positions before its own that a query sees.
        after: Number of positions after its own that a query sees.

    Returns:
        The blocks of queries (M, `block`), and their keys (M, before + `block` + after).
    """
    begins = sentences.cu_seqlens[:-1]
    ends = sentences.cu_seqlens[1:]
    n_blocks = (ends - begins + block - 1) // block  # by sentence
    begins = begins.repeat_interleave(n_blocks)  # of the sentence of each block: (M,)
    ends = ends.repeat_interleave(n_blocks)

    # The number of a block in its sentence is its overall number minus the blocks before that.
    n_earlier = (n_blocks.cumsum(0) - n_blocks).repeat_interleave(n_blocks)
    numbers = torch.arange(len(begins), device=begins.device) - n_earlier
    starts = begins + block * numbers.int()
    queries = PaddedBatch.of(torch.cat([starts, ends[-1:]]))

    # Keys outside of the sentence are hidden, and repeat its first or last token.
    places = starts[:, None] + torch.arange(-before, block + after, device=starts.device)
    mask = (places >= begins[:, None]) & (places < ends[:, None])
    indices = places.clamp(begins[:, None], ends[:, None] - 1)
    keys = replace(
        queries, indices=indices, mask=mask, is_full=False, n_before=before, _gather_indices={}
    )
    return queries, keys
