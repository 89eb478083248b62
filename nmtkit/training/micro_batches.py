"""Micro-batches for CPUs: packed sequences of sentence pairs of similar lengths.

The split of an update into micro-batches is a function of lengths, the same in all processes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtkit.corpus.special_tokens import BOS_ID
from nmtkit.fast.bins import BinLayout
from nmtkit.fast.packing import PackedLayout
from nmtkit.training.batches import Ints, Lengths, Pairs, split_points

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as the model reads them: S source and T target tokens, or (B, L) of both."""

    src: Tensor  # (S,) int64
    src_layout: PackedLayout | BinLayout
    tgt_in: Tensor  # (T,) int64: <s>, then all but the end symbol
    tgt_out: Tensor  # (T,) int64: the tokens to predict; NO_TARGET in the padding of bins
    tgt_layout: PackedLayout | BinLayout


def micro_batches(pairs: Pairs, chosen: Ints, max_tokens: int, multiple_of: int = 1) -> list[Ints]:
    """Split an update into micro-batches of similar numbers of tokens and similar lengths.

    Args:
        pairs: The training corpus.
        chosen: Indices of the pairs of the update (N,).
        max_tokens: Maximum number of tokens per side of a micro-batch; a single pair may exceed it.
        multiple_of: The number of micro-batches is the smallest multiple of this that fits.

    Returns:
        The indices of the pairs, by micro-batch. The largest one is as small as possible.
    """
    chosen = chosen[np.lexsort((pairs.src_lengths[chosen], pairs.tgt_lengths[chosen]))]
    # Lists, since reading a number from a list is faster than from an array.
    src_totals = np.cumsum(pairs.src_lengths[chosen]).tolist()
    tgt_totals = np.cumsum(pairs.tgt_lengths[chosen]).tolist()

    def splits(limit: int) -> list[int]:
        """Return the ends of the micro-batches with at most `limit` tokens per side."""
        return list(split_points([src_totals, tgt_totals], [limit, limit]))

    n_micro_batches = len(splits(max_tokens))
    n_micro_batches += -n_micro_batches % multiple_of
    # The smallest limit for which this number of micro-batches is enough, by binary search.
    low = 0
    high = max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(splits(middle)) <= n_micro_batches:
            high = middle
        else:
            low = middle + 1
    return np.split(chosen, splits(low)[:-1])


def padding_cuts(lengths: Lengths) -> tuple[int, ...]:
    """Return the sentences at which attention begins a new padded batch.

    Args:
        lengths: Lengths of the sentences (N,), in ascending order.
    """
    # The factor was measured on CPUs: padding costs time, and so does another product.
    cuts = []
    first = lengths[0]
    for i, length in enumerate(lengths.tolist()):
        if length > 1.3 * first + 2:
            cuts.append(i)
            first = length
    return tuple(cuts)


def pack(pairs: Pairs, chosen: Ints, device: torch.device = CPU) -> Batch:
    """Return a packed sequence of sentence pairs.

    Args:
        pairs: The training corpus.
        chosen: Indices of pairs (N,), by ascending length of the target.
    """
    cuts = padding_cuts(pairs.tgt_lengths[chosen])
    src, src_layout = _pack_side(pairs.src_ids, pairs.src_offsets, chosen, cuts)
    tgt_out, tgt_layout = _pack_side(pairs.tgt_ids, pairs.tgt_offsets, chosen, cuts)
    tgt_in = tgt_out.roll(1)
    tgt_in[tgt_layout.cu_seqlens[:-1]] = BOS_ID
    return Batch(
        src.to(device),
        src_layout.to(device),
        tgt_in.to(device),
        tgt_out.to(device),
        tgt_layout.to(device),
    )


def _pack_side(
    ids: npt.NDArray[np.unsignedinteger], offsets: Ints, chosen: Ints, cuts: tuple[int, ...]
) -> tuple[Tensor, PackedLayout]:
    """Return the tokens (T,) of one side and their layout.

    Args:
        ids: The token ids of the corpus.
        offsets: The starts of the sentences in `ids`, and the end of the last one.
        chosen: Indices of sentences (N,).
        cuts: The sentences at which attention begins a new padded batch.
    """
    starts = offsets[chosen]
    lengths = offsets[chosen + 1] - starts
    layout = PackedLayout.from_lengths(torch.from_numpy(lengths), cuts)
    places = starts.repeat(lengths) + layout.positions.numpy()
    return torch.from_numpy(ids[places].astype(np.int64)), layout
