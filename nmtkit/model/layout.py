"""Where the sentences of a packed row are: laid end to end, without padding.

All that the model computes for each position runs on the row. Only attention sees sentences.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where each of the N sentences of a row of T tokens begins and ends."""

    cu_seqlens: Tensor  # (N + 1,) int32: sentence n is row[cu_seqlens[n] : cu_seqlens[n + 1]]
    positions: Tensor  # (T,) int32: index of each token in its sentence
    max_seqlen: int  # tokens of the longest sentence, or more

    @property
    def lengths(self) -> Tensor:
        """Return the number of tokens of each sentence (N,)."""
        return self.cu_seqlens.diff()

    @property
    def sentences(self) -> Tensor:
        """Return the number of the sentence of each token (T,)."""
        numbers = torch.arange(len(self.lengths), device=self.cu_seqlens.device)
        return numbers.repeat_interleave(self.lengths)
