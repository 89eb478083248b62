"""The sentence pairs of each update (section 5.1): a function of seed, epoch and lengths."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import add

import numpy as np
import numpy.typing as npt

from nmtkit.utils.errors import UserError

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]

EVERY_EPOCH = 2**64 - 1  # in place of one, where an order is that of all epochs


@dataclass(frozen=True)
class Pairs:
    """A corpus of token ids: sentence i is ids[offsets[i]:offsets[i + 1]], end symbol included."""

    src_ids: npt.NDArray[np.unsignedinteger]
    src_offsets: Ints
    tgt_ids: npt.NDArray[np.unsignedinteger]
    tgt_offsets: Ints
    # How many pairs each training corpus has, in order, and its weight; none: all weigh 1.
    corpora: tuple[tuple[int, float], ...] = ()

    @cached_property
    def src_lengths(self) -> Lengths:
        """(pairs,): the tokens of each source."""
        return np.diff(self.src_offsets).astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Lengths:
        """(pairs,): the tokens of each target."""
        return np.diff(self.tgt_offsets).astype(np.int32)

    def are_within(self, max_length: int) -> npt.NDArray[np.bool_]:
        """Return (pairs,): whether both sides have at most `max_length` tokens."""
        return (self.src_lengths <= max_length) & (self.tgt_lengths <= max_length)

    def drawn(self, max_length: int, *, seed: int, epoch: int) -> Ints:
        """Return the indices of the pairs that an epoch draws, sorted, each as often as it does.

        Pairs are those within `max_length`. An epoch draws `weight` times as many of a corpus as it
        has, going on round it where the one before stopped: after any number of epochs, a pair was
        drawn epochs x weight times, rounded up or down.
        """
        usable = self.are_within(max_length)
        times: Ints = usable.astype(np.int64)
        first = 0
        for n_pairs, weight in self.corpora:
            if weight != 1:
                places = first + np.flatnonzero(usable[first : first + n_pairs])
                n, exact = len(places), Fraction(str(weight))
                begin, end = (int(exact * n * epochs) for epochs in (epoch, epoch + 1))
                order = shuffled(n, seed=seed, epoch=EVERY_EPOCH)
                # How many of the numbers from `begin` to `end` are those of a pair, in each round.
                times[places] = (order - begin) // n - (order - end) // n if n else 0
            first += n_pairs
        return np.repeat(np.arange(len(times)), times)


@dataclass(frozen=True)
class Update:
    """The sentence pairs of one optimizer step."""

    epoch: int  # from 0
    index: int  # within the epoch, from 0
    pairs: Ints  # their indices in the corpus


def updates(
    pairs: Pairs,
    *,
    seed: int,
    max_length: int,
    src_tokens: int,
    tgt_tokens: int,
    like_lengths: bool = False,
    epoch: int = 0,
    index: int = 0,
) -> Iterator[Update]:
    """Yield updates without end, starting with update `index` of `epoch`.

    An update has as many pairs as fit into `src_tokens` and `tgt_tokens`, without padding. Each
    epoch has what `Pairs.drawn` says, by default every pair within `max_length` once, in an order
    of its own. With `like_lengths`, the pairs of an update have similar lengths (section 5.1):
    those of the longer side.

    Deviation: the paper's published code (tensor2tensor at 3d9c62f2) counts padded tokens and sorts
    pairs, as they are read, into buckets by length, of which base has two for each power of 2.
    """
    src_lengths, tgt_lengths = pairs.src_lengths, pairs.tgt_lengths
    if not pairs.are_within(max_length).any():
        raise UserError(
            f"none of the {len(src_lengths):,} training pairs has both sides within "
            f"[model] max_positions = {max_length} tokens; raise it or cut the text into sentences"
        )
    limits = [(src_lengths, src_tokens), (tgt_lengths, tgt_tokens)]
    while True:
        order = pairs.drawn(max_length, seed=seed, epoch=epoch)
        order = order[shuffled(len(order), seed=seed, epoch=epoch)]
        if like_lengths:
            longer = np.maximum(src_lengths[order], tgt_lengths[order])
            order = order[np.argsort(longer, kind="stable")]
        groups = cut(order, limits)
        if like_lengths:
            runs = list(groups)
            groups = (runs[i] for i in shuffled(len(runs), seed=seed, epoch=epoch))
        for i, group in enumerate(groups):
            if i >= index:
                yield Update(epoch, i, group)
        epoch, index = epoch + 1, 0


def shuffled(n: int, *, seed: int, epoch: int) -> Ints:
    """Return a permutation of 0 .. n - 1 that depends on no machine and no library version."""
    # By SplitMix64 (Steele et al. 2014), a bijection: no two keys are equal.
    with np.errstate(over="ignore"):
        key = _splitmix64(np.array([seed], dtype=np.uint64))
        key = _splitmix64(key + np.uint64(epoch))
        numbers: npt.NDArray[np.uint64] = np.arange(n, dtype=np.uint64)
        return np.argsort(_splitmix64(key + numbers))


def _splitmix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def cut(order: Ints, limits: Sequence[tuple[Lengths, int]]) -> Iterator[Ints]:
    """Cut `order` into runs as long as all (lengths, maximum) of `limits` allow, or of one pair."""
    totals = [np.cumsum(lengths[order], dtype=np.int64) for lengths, _ in limits]
    start = 0
    for stop in split_points(totals, [most for _, most in limits]):
        yield order[start:stop]
        start = stop


def split_points(totals: Sequence[Ints | list[int]], most: Sequence[int]) -> Iterator[int]:
    """Yield where each run stops, by the running `totals` of what a run has at most."""
    stop, n = 0, len(totals[0])
    while stop < n:
        used = [total[stop - 1] if stop else 0 for total in totals]
        within = map(bisect_right, totals, map(add, used, most))
        stop = max(min(within), stop + 1)
        yield stop
