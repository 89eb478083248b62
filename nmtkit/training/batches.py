"""The sentence pairs of an update (section 5.1): a function of seed, epoch and lengths."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from nmtkit.utils.errors import UserError

Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]

ALL_EPOCHS = 2**64 - 1  # the "epoch" of an order that is the same in all epochs


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Pairs:
    """A corpus of token ids: sentence i is ids[offsets[i]:offsets[i + 1]], end symbol included."""

    src_ids: npt.NDArray[np.unsignedinteger]  # (source tokens,)
    src_offsets: Ints  # (pairs + 1,)
    tgt_ids: npt.NDArray[np.unsignedinteger]  # (target tokens,)
    tgt_offsets: Ints  # (pairs + 1,)
    # Numbers of pairs and weights of the training corpora, in order. Empty: all weights are 1.
    corpora: tuple[tuple[int, float], ...] = ()

    @cached_property
    def src_lengths(self) -> Lengths:
        """(pairs,): numbers of tokens of the sources."""
        return np.diff(self.src_offsets).astype(np.int32)

    @cached_property
    def tgt_lengths(self) -> Lengths:
        """(pairs,): numbers of tokens of the targets."""
        return np.diff(self.tgt_offsets).astype(np.int32)

    def are_within(self, max_length: int) -> npt.NDArray[np.bool_]:
        """Return (pairs,): whether neither side has more than `max_length` tokens."""
        return (self.src_lengths <= max_length) & (self.tgt_lengths <= max_length)

    def epoch_pairs(self, max_length: int, *, seed: int, epoch: int) -> Ints:
        """Return the pairs of an epoch, before they are shuffled.

        An epoch has `weight` times the pairs of a corpus. If that is not a whole number, an epoch
        continues in the corpus where the one before it stopped, in an order that is the same in all
        epochs. After any number of epochs, a pair has occurred epochs x weight times, rounded up or
        down.

        Args:
            max_length: Pairs with a longer side are left out.
            epoch: The number of the epoch, from 0.

        Returns:
            Indices of pairs, sorted. An index occurs as often as the epoch has the pair.
        """
        is_usable = self.are_within(max_length)  # (pairs,)
        n_times: Ints = is_usable.astype(np.int64)  # (pairs,), number of occurrences
        first = 0
        for n_pairs, weight in self.corpora:
            usable = first + np.flatnonzero(is_usable[first : first + n_pairs])
            first += n_pairs
            n_usable = len(usable)
            if weight == 1 or n_usable == 0:
                continue
            # The epoch takes the pairs with the numbers begin .. end - 1 of the endless repetition
            # of the corpus, in which the pair at place i has the numbers i, i + n, i + 2n ..
            # Decimal, since 0.1 as a float would add up to a little more than its share.
            exact_weight = Fraction(str(weight))
            begin = int(exact_weight * n_usable * epoch)
            end = int(exact_weight * n_usable * (epoch + 1))
            places = shuffled(n_usable, seed=seed, epoch=ALL_EPOCHS)
            n_times[usable] = (places - begin) // n_usable - (places - end) // n_usable
        return np.repeat(np.arange(len(n_times)), n_times)


@dataclass(frozen=True)
class Update:
    """The sentence pairs of one optimizer step."""

    epoch: int  # from 0
    index: int  # within the epoch, from 0
    pairs: Ints  # (N,) indices in the corpus


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

    The arguments are those of `epoch_updates`.
    """
    while True:
        groups = epoch_updates(
            pairs,
            seed=seed,
            max_length=max_length,
            src_tokens=src_tokens,
            tgt_tokens=tgt_tokens,
            like_lengths=like_lengths,
            epoch=epoch,
        )
        for i in range(index, len(groups)):
            yield Update(epoch, i, groups[i])
        epoch += 1
        index = 0


@lru_cache(maxsize=1)  # the first epoch is read twice: the shapes of bins are chosen for it
def epoch_updates(
    pairs: Pairs,
    *,
    seed: int,
    max_length: int,
    src_tokens: int,
    tgt_tokens: int,
    like_lengths: bool,
    epoch: int,
) -> tuple[Ints, ...]:
    """Return the indices of the pairs of each update of an epoch.

    An update is as large as `src_tokens` and `tgt_tokens` allow, without padding. An epoch has the
    pairs of `Pairs.epoch_pairs`, in an order of its own.

    Deviation: the paper's published code (tensor2tensor at 3d9c62f2) counts padded tokens and sorts
    pairs, as they are read, into buckets by length, of which base has two for each power of 2.

    Args:
        pairs: The training corpus.
        max_length: Pairs with a longer side are left out.
        src_tokens: Maximum number of source tokens of an update; a single pair may exceed it.
        tgt_tokens: Maximum number of target tokens.
        like_lengths: Whether the pairs of an update have similar lengths (section 5.1): the lengths
            of the longer side.
        epoch: The number of the epoch, from 0.

    Raises:
        UserError: All pairs are too long.
    """
    src_lengths = pairs.src_lengths
    tgt_lengths = pairs.tgt_lengths
    if not pairs.are_within(max_length).any():
        raise UserError(
            f"none of the {len(src_lengths):,} training pairs has both sides within "
            f"[model] max_positions = {max_length} tokens; raise it or cut the text into sentences"
        )
    limits = [(src_lengths, src_tokens), (tgt_lengths, tgt_tokens)]
    order = pairs.epoch_pairs(max_length, seed=seed, epoch=epoch)
    order = order[shuffled(len(order), seed=seed, epoch=epoch)]
    if like_lengths:
        # A stable sort: pairs of the same length are in another order in the next epoch.
        longer = np.maximum(src_lengths[order], tgt_lengths[order])
        order = order[np.argsort(longer, kind="stable")]
    groups = list(cut(order, limits))
    # Sorted pairs would give an epoch that begins with short sentences and ends with long ones.
    if like_lengths:
        groups = [groups[i] for i in shuffled(len(groups), seed=seed, epoch=epoch)]
    return tuple(groups)


def shuffled(n: int, *, seed: int, epoch: int) -> Ints:
    """Return a permutation of 0 .. n - 1 that does not depend on machines or library versions.

    Args:
        n: Length of the permutation.
        epoch: Permutations of different epochs are independent.
    """
    # No two keys are equal, because SplitMix64 (Steele et al. 2014) is a bijection.
    with np.errstate(over="ignore"):
        key = _splitmix64(np.array([seed], dtype=np.uint64))
        key = _splitmix64(key + np.uint64(epoch))
        numbers: npt.NDArray[np.uint64] = np.arange(n, dtype=np.uint64)
        return np.argsort(_splitmix64(key + numbers))


def _splitmix64(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the pseudo-random numbers (n,) of the states `x` (n,)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def cut(order: Ints, limits: Sequence[tuple[Lengths, int]]) -> Iterator[Ints]:
    """Cut a sequence of pairs into groups that are as long as the limits allow.

    Args:
        order: Indices of pairs (N,).
        limits: The lengths of all pairs of the corpus on one side, and the maximum number of tokens
            of a group on that side. A single pair may exceed it.
    """
    totals = []
    maxima = []
    for lengths, max_tokens in limits:
        totals.append(np.cumsum(lengths[order], dtype=np.int64))
        maxima.append(max_tokens)
    start = 0
    for stop in split_points(totals, maxima):
        yield order[start:stop]
        start = stop


def split_points(totals: Sequence[Ints | list[int]], maxima: Sequence[int]) -> Iterator[int]:
    """Yield the ends of groups of consecutive items; groups are as long as possible.

    Args:
        totals: Cumulative sums of several quantities over the items (N,).
        maxima: The maxima of these quantities in a group. A single item may exceed them.
    """
    n_items = len(totals[0])
    stop = 0
    while stop < n_items:
        # Sums grow: binary search finds the end of a group.
        ends = []
        for total, maximum in zip(totals, maxima, strict=True):
            used = total[stop - 1] if stop else 0
            ends.append(bisect_right(total, used + maximum))
        stop = max(min(ends), stop + 1)
        yield stop
