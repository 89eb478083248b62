"""Packed rows: sentences laid end to end, without padding.

All that the model computes for each position runs on the row. Only attention sees sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where each of the N sentences of a row of T tokens begins and ends."""

    cu_seqlens: Tensor  # (N + 1,) int32: sentence n is row[cu_seqlens[n] : cu_seqlens[n + 1]]
    positions: Tensor  # (T,) int32: index of each token in its sentence
    max_seqlen: int  # tokens of the longest sentence, or more

    @classmethod
    def of_lengths(cls, lengths: Sequence[int] | Tensor) -> "Layout":
        """Return the layout of sentences with the given lengths, each at least 1."""
        sizes = torch.as_tensor(lengths, dtype=torch.int32)
        return cls(*places(sizes), int(sizes.max()))

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens, T."""
        return len(self.positions)

    @property
    def lengths(self) -> Tensor:
        """Return the number of tokens of each sentence (N,)."""
        return self.cu_seqlens.diff()

    @property
    def sentences(self) -> Tensor:
        """Return the number of the sentence of each token (T,)."""
        return torch.arange(len(self.lengths), device=self.positions.device).repeat_interleave(
            self.lengths
        )


def places(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return the offsets (N + 1,) and positions (T,) of sentences with `lengths` (N,), int32."""
    cu_seqlens = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    torch.cumsum(lengths, 0, dtype=torch.int32, out=cu_seqlens[1:])
    # numpy repeats in this thread. torch wakes others, which a GPU's batches need not wait for.
    starts = torch.from_numpy(cu_seqlens.numpy()[:-1].repeat(lengths.numpy()))
    return cu_seqlens, torch.arange(len(starts), dtype=torch.int32) - starts
