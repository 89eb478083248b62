"""Micro-batches for GPUs: whole sentence pairs in dense bins of a few constant shapes.

The source and the target of a pair are in the bin of the same index. The shapes, and which pairs
share a bin, are functions of lengths, the same in all processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import ceil

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID
from nmtkit.fast.bins import BinLayout
from nmtkit.training.batches import Ints, Pairs
from nmtkit.training.loss import NO_TARGET
from nmtkit.training.micro_batches import Batch

MAX_SHAPES = 6  # each of them is compiled and captured
MIN_GAIN = 0.005  # of the cost of all updates, by another shape
N_LENGTHS = 8  # lengths of bins to choose from
MIN_BIN_LENGTH = 16  # attention kernels compute in tiles of this length or more
# The cost of a micro-batch is counted in positions. Attention in bins of the first length costs as
# much as all other layers, and launching the kernels as much as the second number of positions:
# estimates for base on an H100.
ATTENTION_LENGTH = 2_000
LAUNCH_POSITIONS = 1_000
N_RECENT_BINS = 16  # bins that are searched for space before another one is opened
# The fields of a position of a filled bin, in this order.
SRC, SRC_SENTENCES, SRC_POSITIONS, TGT_IN, TGT_OUT, TGT_SENTENCES, TGT_POSITIONS = range(7)
N_FIELDS = 7

Bins = list[list[int]]  # the indices of the pairs in each bin


@dataclass(frozen=True)
class BinShape:
    """The shape of a micro-batch."""

    n_bins: int  # B
    length: int  # L, tokens per side of a bin

    @property
    def n_positions(self) -> int:
        """B x L."""
        return self.n_bins * self.length

    @property
    def cost(self) -> int:
        """The estimated time of a micro-batch: a whole number; all processes sum it alike."""
        with_attention = self.n_positions * (ATTENTION_LENGTH + self.length)
        return with_attention + LAUNCH_POSITIONS * ATTENTION_LENGTH


def bin_lengths(longest: int) -> list[int]:
    """Return the lengths to choose from, up to the power of two that holds the longest sentence.

    Args:
        longest: Tokens of the longest sentence.
    """
    power_of_two = max(MIN_BIN_LENGTH, 1 << (longest - 1).bit_length())
    step = max(MIN_BIN_LENGTH, power_of_two // N_LENGTHS)
    return list(range(step, power_of_two + step, step))


def choose_shapes(
    pairs: Pairs, updates: Sequence[Ints], max_length: int, max_tokens: int, multiple_of: int
) -> list[BinShape]:
    """Choose the shapes of the micro-batches of a training.

    Large bins are filled better and need fewer micro-batches; attention is faster in short ones.
    The first shape holds any sentence. Each further one is the shape that makes the sampled updates
    cheapest, as long as it gains `MIN_GAIN`.

    Args:
        pairs: The training corpus.
        updates: Indices of the pairs of some updates, as a sample.
        max_length: [model] max_positions; training leaves longer sentences out.
        max_tokens: Maximum number of tokens per side of a micro-batch.
        multiple_of: An update is split into a multiple of this number of micro-batches.

    Returns:
        At most `MAX_SHAPES` shapes, those with most positions first.
    """
    longest_sides = np.maximum(pairs.src_lengths, pairs.tgt_lengths)
    longest_of_all = int(longest_sides[pairs.are_within(max_length)].max())
    lengths = bin_lengths(longest_of_all)
    # Bins that one of `multiple_of` micro-batches gets, by length and update: whole numbers, or
    # infinity if a sentence is longer than the bins.
    n_bins = np.full((len(lengths), len(updates)), np.inf)
    for column, chosen in enumerate(updates):
        longest = int(longest_sides[chosen].max())
        for row, length in enumerate(lengths):
            if longest <= length:
                n_bins[row, column] = ceil(len(pack_bins(pairs, chosen, length)) / multiple_of)

    # The cost of each update, by shape. A shape divides the bins of some update evenly among as few
    # micro-batches as memory allows.
    costs: dict[BinShape, npt.NDArray[np.float64]] = {}
    for length, row_bins in zip(lengths, n_bins, strict=True):
        max_bins = max(1, max_tokens // length)
        for number in np.unique(row_bins[np.isfinite(row_bins)]).tolist():
            shape = BinShape(ceil(number / ceil(number / max_bins)), length)
            costs[shape] = np.ceil(row_bins / shape.n_bins) * shape.cost

    shapes: list[BinShape] = []
    lowest = np.full(len(updates), np.inf)
    candidates = [shape for shape in costs if shape.length >= longest_of_all]
    while len(shapes) < MAX_SHAPES:
        best = min(candidates, key=lambda shape: np.minimum(lowest, costs[shape]).sum())
        with_best = np.minimum(lowest, costs[best])
        if with_best.sum() > (1 - MIN_GAIN) * lowest.sum():
            break
        shapes.append(best)
        lowest = with_best
        candidates = list(costs)
    return sorted(shapes, key=lambda shape: shape.n_positions, reverse=True)


def split_into_bins(
    pairs: Pairs, chosen: Ints, shapes: Sequence[BinShape], multiple_of: int
) -> tuple[BinShape, list[Bins]]:
    """Split an update into micro-batches of the shape that costs least.

    Args:
        pairs: The training corpus.
        chosen: Indices of the pairs of the update (N,).
        shapes: The shapes of the training, one of which holds any sentence.
        multiple_of: The number of micro-batches is a multiple of this, or the number of bins if
            that is less.

    Returns:
        The shape, and the bins of each micro-batch. Their numbers of bins differ by at most one.
    """
    src_lengths = pairs.src_lengths[chosen]
    tgt_lengths = pairs.tgt_lengths[chosen]
    longest = int(np.maximum(src_lengths, tgt_lengths).max())
    n_tokens = max(int(src_lengths.sum()), int(tgt_lengths.sum()))
    # The lowest possible cost of each shape, its index, and the micro-batches as a multiple.
    queue: list[tuple[int, int, int]] = []
    for index, shape in enumerate(shapes):
        if longest <= shape.length:
            n_rounds = ceil(n_tokens / (multiple_of * shape.n_positions))
            queue.append((n_rounds * shape.cost, index, n_rounds))
    heapify(queue)
    # Pairs are packed only for lengths that may turn out cheapest.
    packed: dict[int, Bins] = {}
    while True:
        _, index, n_rounds = heappop(queue)
        shape = shapes[index]
        if shape.length not in packed:
            packed[shape.length] = pack_bins(pairs, chosen, shape.length)
        bins = packed[shape.length]
        n_needed = ceil(len(bins) / (multiple_of * shape.n_bins))
        if n_needed <= n_rounds:
            break
        heappush(queue, (n_needed * shape.cost, index, n_needed))
    n_micro_batches = min(n_rounds * multiple_of, len(bins))
    ends = [len(bins) * number // n_micro_batches for number in range(n_micro_batches + 1)]
    return shape, [bins[begin:end] for begin, end in pairwise(ends)]


def pack_bins(pairs: Pairs, chosen: Ints, length: int) -> Bins:
    """Put sentence pairs into few bins, the longest first, each into the first bin with space.

    That is first-fit decreasing, but it searches less: a bin is found without a search while its
    fuller side has space for the longer side of a pair. Otherwise only the last bins are searched.

    Args:
        pairs: The training corpus.
        chosen: Indices of the pairs (N,), no side of which has more than `length` tokens.
        length: Tokens per side of a bin.
    """
    longest_sides = np.maximum(pairs.src_lengths[chosen], pairs.tgt_lengths[chosen])
    order = np.argsort(-longest_sides, kind="stable")
    chosen = chosen[order]
    # Lists, since reading a number from a list is faster than from an array.
    sizes = longest_sides[order].tolist()
    src_lengths = pairs.src_lengths[chosen].tolist()
    tgt_lengths = pairs.tgt_lengths[chosen].tolist()
    bins: Bins = []
    src_space: list[int] = []  # tokens that still fit into the bins
    tgt_space: list[int] = []
    # Bins with space for the present size on both sides, a heap; and the others by their space.
    spacious: list[int] = []
    by_space: list[list[int]] = [[] for _ in range(length + 1)]
    space = length
    for pair, size, n_src, n_tgt in zip(
        chosen.tolist(), sizes, src_lengths, tgt_lengths, strict=True
    ):
        while space > size:
            space -= 1
            for number in by_space[space]:
                heappush(spacious, number)
        if not spacious:
            # The shorter side of the pair may be that of the fuller side of a bin.
            for number in range(max(0, len(bins) - N_RECENT_BINS), len(bins)):
                if n_src <= src_space[number] and n_tgt <= tgt_space[number]:
                    by_space[min(src_space[number], tgt_space[number])].remove(number)
                    break
            else:
                number = len(bins)
                bins.append([])
                src_space.append(length)
                tgt_space.append(length)
            spacious.append(number)
        number = spacious[0]
        bins[number].append(pair)
        src_space[number] -= n_src
        tgt_space[number] -= n_tgt
        left = min(src_space[number], tgt_space[number])
        if left < size:
            heappop(spacious)
            by_space[left].append(number)
    return bins


def fill_bins(pairs: Pairs, bins: Bins, shape: BinShape) -> Tensor:
    """Write sentence pairs into the bins of one micro-batch.

    Args:
        pairs: The training corpus.
        bins: The indices of the pairs, bin by bin, for `shape.n_bins` bins or fewer.
        shape: The shape of the micro-batch.

    Returns:
        The fields of all positions (7, B, L), int64, of which `bin_batch` is a view. They are one
        tensor, since a single copy to a device is faster than seven.
    """
    fields = np.zeros((N_FIELDS, shape.n_positions), dtype=np.int64)
    fields[[SRC, TGT_IN]] = PAD_ID
    fields[TGT_OUT] = NO_TARGET
    # Of each pair (N,): its bin, the first pair of that bin, and its number there.
    sizes = np.array([len(indices) for indices in bins], dtype=np.int64)
    rows = np.arange(len(bins)).repeat(sizes)
    firsts = (sizes.cumsum() - sizes).repeat(sizes)
    numbers = np.arange(len(rows)) - firsts + 1
    chosen = np.fromiter(chain.from_iterable(bins), np.int64, len(rows))

    def write(
        ids: npt.NDArray[np.unsignedinteger],
        offsets: Ints,
        token_field: int,
        sentence_field: int,
        position_field: int,
    ) -> tuple[Ints, Ints, Ints]:
        """Write one side; return its tokens (T,), their places, and the first token of each pair.

        Args:
            ids: The token ids of the corpus.
            offsets: The starts of the sentences in `ids`, and the end of the last one.
        """
        lengths = offsets[chosen + 1] - offsets[chosen]
        begins = lengths.cumsum() - lengths
        positions = np.arange(lengths.sum()) - begins.repeat(lengths)
        # A sentence begins behind those before it in its bin.
        places = rows * shape.length + begins - begins[firsts]
        places = places.repeat(lengths) + positions
        tokens = ids[offsets[chosen].repeat(lengths) + positions].astype(np.int64)
        fields[token_field, places] = tokens
        fields[sentence_field, places] = numbers.repeat(lengths)
        fields[position_field, places] = positions
        return tokens, places, begins

    write(pairs.src_ids, pairs.src_offsets, SRC, SRC_SENTENCES, SRC_POSITIONS)
    tokens, places, begins = write(
        pairs.tgt_ids, pairs.tgt_offsets, TGT_OUT, TGT_SENTENCES, TGT_POSITIONS
    )
    # The input is the target, shifted by one position.
    inputs = np.roll(tokens, 1)
    inputs[begins] = BOS_ID
    fields[TGT_IN, places] = inputs
    return torch.from_numpy(fields.reshape(N_FIELDS, shape.n_bins, shape.length))


def trial_bins(pairs: Pairs, shape: BinShape, max_length: int) -> Tensor:
    """Fill a micro-batch with pairs from the beginning of the corpus, to try its shape.

    Args:
        pairs: The training corpus.
        shape: The shape of the micro-batch.
        max_length: [model] max_positions.
    """
    is_fitting = pairs.are_within(min(shape.length, max_length))
    chosen: Ints = np.flatnonzero(is_fitting)[: shape.n_positions]  # each has a token or more
    longest_sides = np.maximum(pairs.src_lengths[chosen], pairs.tgt_lengths[chosen])
    chosen = chosen[longest_sides.cumsum() <= shape.n_positions]
    bins = pack_bins(pairs, chosen, shape.length)
    return fill_bins(pairs, bins[: shape.n_bins], shape)


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
