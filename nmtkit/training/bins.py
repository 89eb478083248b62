"""Micro-batches for GPUs: whole sentence pairs in dense bins of one constant shape.

The source and the target of a pair are in the bin of the same index. Which pairs share a bin is a
function of their lengths, the same in all processes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor

from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID
from nmtkit.fast.bins import BinLayout
from nmtkit.training.batches import Ints, Pairs
from nmtkit.training.loss import NO_TARGET
from nmtkit.training.micro_batches import Batch

MAX_SPLIT_SHARE = 0.05  # of the updates, which need one micro-batch more than memory requires
MIN_BIN_LENGTH = 16  # attention kernels compute in tiles of this length or more
# The fields of a position of a filled bin, in this order.
SRC, SRC_SENTENCES, SRC_POSITIONS, TGT_IN, TGT_OUT, TGT_SENTENCES, TGT_POSITIONS = range(7)
N_FIELDS = 7


@dataclass(frozen=True)
class BinShape:
    """The shape of all micro-batches of a training."""

    n_bins: int  # B
    length: int  # L, tokens per side of a bin


def bin_length(longest: int) -> int:
    """Return L for sentences of at most `longest` tokens: a power of two."""
    power_of_two = 1 << (longest - 1).bit_length()
    return max(MIN_BIN_LENGTH, power_of_two)


def bin_shape(
    pairs: Pairs, updates: Iterable[Ints], max_length: int, max_tokens: int, n_processes: int
) -> BinShape:
    """Choose the shape of the micro-batches of a training.

    A larger number of bins leaves more of them empty in most updates; a smaller one needs a second
    micro-batch in more of them. The smallest number is chosen with which few of the sampled updates
    need more micro-batches than memory requires.

    Args:
        pairs: The training corpus.
        updates: Indices of the pairs of some updates, as a sample.
        max_length: [model] max_positions; training leaves longer sentences out.
        max_tokens: Maximum number of tokens per side of a micro-batch.
        n_processes: Number of processes that share an update.
    """
    longest_sides = np.maximum(pairs.src_lengths, pairs.tgt_lengths)
    length = bin_length(int(longest_sides[pairs.are_within(max_length)].max()))
    n_bins_that_fit = max(1, max_tokens // length)
    numbers_of_bins = []  # of even micro-batches, as few as memory allows, update by update
    for chosen in updates:
        n_bins = ceil(len(first_fit_decreasing(pairs, chosen, length)) / n_processes)
        n_micro_batches = ceil(n_bins / n_bins_that_fit)
        numbers_of_bins.append(ceil(n_bins / n_micro_batches))
    numbers_of_bins.sort(reverse=True)
    n_split = int(MAX_SPLIT_SHARE * len(numbers_of_bins))
    return BinShape(numbers_of_bins[n_split], length)


def first_fit_decreasing(pairs: Pairs, chosen: Ints, length: int) -> list[list[int]]:
    """Put sentence pairs into as few bins as first-fit decreasing finds.

    Args:
        pairs: The training corpus.
        chosen: Indices of the pairs (N,), no side of which has more than `length` tokens.
        length: Tokens per side of a bin.

    Returns:
        The indices of the pairs, bin by bin. The pairs with the longest sides come first.
    """
    longest_sides = np.maximum(pairs.src_lengths[chosen], pairs.tgt_lengths[chosen])
    order = chosen[np.argsort(-longest_sides, kind="stable")]
    src_lengths = pairs.src_lengths[order].tolist()
    tgt_lengths = pairs.tgt_lengths[order].tolist()
    bins: list[list[int]] = []
    src_left: list[int] = []  # tokens that still fit into the bins
    tgt_left: list[int] = []
    for pair, n_src, n_tgt in zip(order.tolist(), src_lengths, tgt_lengths, strict=True):
        # The first bin with enough space on both sides, or a new one.
        for number, left in enumerate(src_left):
            if n_src <= left and n_tgt <= tgt_left[number]:
                break
        else:
            number = len(bins)
            bins.append([])
            src_left.append(length)
            tgt_left.append(length)
        bins[number].append(pair)
        src_left[number] -= n_src
        tgt_left[number] -= n_tgt
    return bins


def fill_bins(pairs: Pairs, bins: list[list[int]], shape: BinShape) -> Tensor:
    """Write sentence pairs into the bins of one micro-batch.

    Args:
        pairs: The training corpus.
        bins: The indices of the pairs, bin by bin, for `shape.n_bins` bins or fewer.
        shape: The shape of the micro-batch.

    Returns:
        The fields of all positions (7, B, L), int64, of which `bin_batch` is a view. They are one
        tensor, since a single copy to a device is faster than seven.
    """
    fields = np.zeros((N_FIELDS, shape.n_bins, shape.length), dtype=np.int64)
    fields[[SRC, TGT_IN]] = PAD_ID
    fields[TGT_OUT] = NO_TARGET
    for row, indices in enumerate(bins):
        src_begin = 0
        tgt_begin = 0
        for number, pair in enumerate(indices, start=1):
            src = pairs.src_ids[pairs.src_offsets[pair] : pairs.src_offsets[pair + 1]]
            tgt = pairs.tgt_ids[pairs.tgt_offsets[pair] : pairs.tgt_offsets[pair + 1]]
            src_end = src_begin + len(src)
            tgt_end = tgt_begin + len(tgt)
            fields[SRC, row, src_begin:src_end] = src
            fields[SRC_SENTENCES, row, src_begin:src_end] = number
            fields[SRC_POSITIONS, row, src_begin:src_end] = np.arange(len(src))
            # The input is the target, shifted by one position.
            fields[TGT_IN, row, tgt_begin] = BOS_ID
            fields[TGT_IN, row, tgt_begin + 1 : tgt_end] = tgt[:-1]
            fields[TGT_OUT, row, tgt_begin:tgt_end] = tgt
            fields[TGT_SENTENCES, row, tgt_begin:tgt_end] = number
            fields[TGT_POSITIONS, row, tgt_begin:tgt_end] = np.arange(len(tgt))
            src_begin = src_end
            tgt_begin = tgt_end
    return torch.from_numpy(fields)


def bin_batch(fields: Tensor) -> Batch:
    """Return the batch of filled bins (7, B, L), whose tensors are views of them."""
    return Batch(
        fields[SRC],
        BinLayout(fields[SRC_SENTENCES], fields[SRC_POSITIONS]),
        fields[TGT_IN],
        fields[TGT_OUT],
        BinLayout(fields[TGT_SENTENCES], fields[TGT_POSITIONS]),
    )


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to `device`; to a GPU without waiting, from pinned memory."""
    if device.type != "cuda":
        return tensor.to(device)
    with torch.cuda.device(device):  # another thread would use the first GPU too
        return tensor.pin_memory().to(device, non_blocking=True)
