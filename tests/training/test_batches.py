"""Updates as a function of (seed, epoch, lengths), and packing."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.special_tokens import BOS_ID
from nmtkit.fast.packing import PackedLayout
from nmtkit.training.batches import Ints, Pairs, Update, shuffled, updates
from nmtkit.training.micro_batches import micro_batches, pack, padding_cuts
from nmtkit.utils.errors import UserError

MAX_LENGTH = 9  # shorter than the longest drawn sentence: some pairs are too long
Lengths = list[tuple[int, int]]
some_lengths = st.lists(
    st.tuples(st.integers(1, MAX_LENGTH + 2), st.integers(1, MAX_LENGTH + 2)),
    min_size=1,
    max_size=40,
).filter(lambda lengths: min(max(pair) for pair in lengths) <= MAX_LENGTH)
max_token_counts = st.integers(MAX_LENGTH, 40)  # of one side; every usable pair fits


def pairs_of(lengths: Lengths) -> Pairs:
    """A corpus with sentences of these lengths, in which all tokens differ."""

    def side(
        sizes: list[int], first: int
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint16]], Ints]:
        ids = np.arange(first, first + sum(sizes), dtype=np.uint16)
        return ids, np.array([0, *itertools.accumulate(sizes)], dtype=np.int64)

    src_ids, src_offsets = side([src for src, _ in lengths], 10)
    tgt_ids, tgt_offsets = side([tgt for _, tgt in lengths], 1_000)
    return Pairs(src_ids, src_offsets, tgt_ids, tgt_offsets)


def first_epochs(
    pairs: Pairs, n: int, *, seed: int, src: int, tgt: int, like_lengths: bool = False
) -> list[Update]:
    source = updates(
        pairs,
        seed=seed,
        max_length=MAX_LENGTH,
        src_tokens=src,
        tgt_tokens=tgt,
        like_lengths=like_lengths,
    )
    return list(itertools.takewhile(lambda update: update.epoch < n, source))


@st.composite
def weighted_pairs(draw: st.DrawFn) -> Pairs:
    """A corpus of several corpora whose weights are often whole numbers."""
    pairs = pairs_of(draw(some_lengths))
    cuts = sorted(draw(st.lists(st.integers(0, len(pairs.src_lengths)), max_size=3)))
    sizes = np.diff([0, *cuts, len(pairs.src_lengths)]).tolist()
    weights = st.just(1.0) | st.sampled_from((0.3, 0.5, 1.5, 2.0, 3.7)) | st.floats(0.3, 5)
    return replace(pairs, corpora=tuple((size, draw(weights)) for size in sizes))


def as_lists(chosen: list[Update]) -> list[tuple[int, int, list[int]]]:
    return [(update.epoch, update.index, update.pairs.tolist()) for update in chosen]


@given(
    some_lengths.map(pairs_of) | weighted_pairs(), max_token_counts, max_token_counts, st.booleans()
)
def test_epochs_follow_weights_and_limits(
    pairs: Pairs, src: int, tgt: int, like_lengths: bool
) -> None:
    lengths = list(zip(pairs.src_lengths.tolist(), pairs.tgt_lengths.tolist(), strict=True))
    usable = [max(pair) <= MAX_LENGTH for pair in lengths]
    chosen = first_epochs(pairs, 4, seed=1, src=src, tgt=tgt, like_lengths=like_lengths)
    counts: Counter[int] = Counter()
    for n_epochs in range(1, 5):
        epoch = [update.pairs.tolist() for update in chosen if update.epoch == n_epochs - 1]
        counts.update(itertools.chain(*epoch))
        assert all(usable[i] for i in counts)
        first = 0
        for n_pairs, weight in pairs.corpora or ((len(lengths), 1.0),):
            drawn = [counts[i] for i in range(first, first + n_pairs) if usable[i]]
            exact = n_epochs * Decimal(str(weight))
            assert sum(drawn) == math.floor(exact * len(drawn))
            assert {*drawn} <= {math.floor(exact), math.ceil(exact)}
            first += n_pairs
        for update, next_update in itertools.pairwise([*epoch, []]):
            n_src = sum(lengths[i][0] for i in update)
            n_tgt = sum(lengths[i][1] for i in update)
            assert n_src <= src
            assert n_tgt <= tgt
            if next_update and not like_lengths:
                more_src, more_tgt = lengths[next_update[0]]
                assert n_src + more_src > src or n_tgt + more_tgt > tgt


def test_weight_below_one_is_exact() -> None:
    """As floats, 0.29 * 100 is a little less than 29."""
    pairs = replace(pairs_of([(3, 3)] * 100), corpora=((100, 0.29),))
    parts = [pairs.epoch_pairs(9, seed=seed, epoch=0).tolist() for seed in (1, 2)]
    assert parts[0] != parts[1]
    for part in parts:
        assert len(part) == 29
        assert 30 < np.mean(part) < 70


@given(some_lengths, max_token_counts, max_token_counts)
def test_like_length_updates_are_disjoint(lengths: Lengths, src: int, tgt: int) -> None:
    """No two updates of an epoch overlap in the length of their pairs' longer sides."""
    pairs = pairs_of(lengths)
    chosen = first_epochs(pairs, 1, seed=1, src=src, tgt=tgt, like_lengths=True)
    longer = [sorted(max(lengths[i]) for i in update.pairs) for update in chosen]
    longer.sort(key=lambda lengths: (lengths[0], lengths[-1]))
    for shorter_update, longer_update in itertools.pairwise(longer):
        assert shorter_update[-1] <= longer_update[0]


def test_like_length_updates_change_order() -> None:
    """In every epoch: the same lengths would else always follow one another."""
    pairs = pairs_of([(n, n) for n in range(1, MAX_LENGTH + 1)])
    orders = []
    chosen = first_epochs(pairs, 3, seed=1, src=MAX_LENGTH, tgt=MAX_LENGTH, like_lengths=True)
    for epoch in range(3):
        orders.append([tuple(update.pairs) for update in chosen if update.epoch == epoch])
    assert len({frozenset(order) for order in orders}) == 1
    assert len({tuple(order) for order in orders}) == 3


@given(weighted_pairs(), st.integers(0, 2), st.booleans(), st.data())
def test_resumed_updates_are_the_same(
    pairs: Pairs, seed: int, like_lengths: bool, data: st.DataObject
) -> None:
    uninterrupted = as_lists(
        first_epochs(pairs, 4, seed=seed, src=20, tgt=17, like_lengths=like_lengths)
    )
    at = data.draw(st.integers(0, len(uninterrupted) - 1))
    epoch, index, _ = uninterrupted[at]
    if data.draw(st.booleans()) and at:  # as in a checkpoint: the index after the last update
        epoch = uninterrupted[at - 1][0]
        index = uninterrupted[at - 1][1] + 1
    resumed = updates(
        pairs,
        seed=seed,
        max_length=MAX_LENGTH,
        src_tokens=20,
        tgt_tokens=17,
        like_lengths=like_lengths,
        epoch=epoch,
        index=index,
    )
    rest = uninterrupted[at:]
    assert as_lists(list(itertools.islice(resumed, len(rest)))) == rest


@pytest.mark.parametrize("lengths", [[(10, 2)], [(2, 10), (11, 11)]])
def test_too_long_corpus_is_refused(lengths: Lengths) -> None:
    with pytest.raises(UserError, match=r"none of the \d training pairs .* max_positions = 9"):
        next(
            updates(pairs_of(lengths), seed=1, max_length=MAX_LENGTH, src_tokens=50, tgt_tokens=50)
        )


def splitmix64(x: int) -> int:
    """SplitMix64 in integers of any size."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_splitmix64_published_numbers() -> None:
    states = [1234567 + i * 0x9E3779B97F4A7C15 for i in range(3)]
    assert [splitmix64(state) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(0, 2**63), st.integers(0, 1_000), st.integers(0, 60))
def test_shuffle_sorts_by_splitmix64(seed: int, epoch: int, n: int) -> None:
    key = splitmix64((splitmix64(seed) + epoch) % 2**64)
    expected = sorted(range(n), key=lambda i: splitmix64((key + i) % 2**64))
    assert shuffled(n, seed=seed, epoch=epoch).tolist() == expected


def largest_side(pairs: Pairs, group: Ints) -> int:
    return max(int(pairs.src_lengths[group].sum()), int(pairs.tgt_lengths[group].sum()))


def group_greedily(lengths: list[tuple[int, int]], max_tokens: int) -> list[list[tuple[int, int]]]:
    """Append pairs to a group until the next one would exceed the limit on a side."""
    groups: list[list[tuple[int, int]]] = []
    for pair in lengths:
        if not groups or any(
            sum(side) > max_tokens for side in zip(*groups[-1], pair, strict=True)
        ):
            groups.append([])
        groups[-1].append(pair)
    return groups


@given(some_lengths, st.integers(1, 30), st.integers(1, 5))
def test_micro_batches_are_even(lengths: Lengths, max_tokens: int, multiple_of: int) -> None:
    """Groups are as few as possible, in multiples, and the largest is as small as possible."""
    pairs = pairs_of(lengths)
    chosen = np.arange(0, len(lengths), 2)
    groups = micro_batches(pairs, chosen, max_tokens, multiple_of)
    order = [i for group in groups for i in group.tolist()]
    assert sorted(order) == chosen.tolist()
    assert order == sorted(order, key=lambda i: (lengths[i][1], lengths[i][0], i))
    n = len(group_greedily([lengths[i] for i in order], max_tokens))
    n += -n % multiple_of
    assert len(groups) <= n
    largest = max(largest_side(pairs, group) for group in groups)
    smaller = group_greedily([lengths[i] for i in order], largest - 1)
    longest = max(max(lengths[i]) for i in order)
    assert len(smaller) > n or largest == longest
    for group in groups:
        assert len(group) > 0
        assert len(group) == 1 or largest_side(pairs, group) <= max_tokens


@pytest.mark.parametrize("like_lengths", [True, False])
@pytest.mark.parametrize("n_processes", [1, 2, 4])
def test_process_shares_are_even(n_processes: int, like_lengths: bool) -> None:
    """For updates like those of WMT, the largest share is at most 6 % above the mean."""
    limits = {"max_length": 256, "src_tokens": 25_000, "tgt_tokens": 25_000}
    pairs = wmt_like_pairs()
    source = updates(pairs, seed=1, like_lengths=like_lengths, **limits)
    for update in itertools.islice(source, 24):
        groups = micro_batches(pairs, update.pairs, 25_000, n_processes)
        assert len(groups) == n_processes
        largest = max(largest_side(pairs, group) for group in groups)
        assert largest <= 1.06 * largest_side(pairs, update.pairs) / n_processes


def wmt_like_pairs() -> Pairs:
    """20,000 pairs with the distribution of sentence lengths of WMT."""
    generator = np.random.default_rng(0)
    sizes = generator.gamma(2.8, 1 / 2.8, (20_000, 1)) * generator.normal(1.0, 0.15, (20_000, 2))
    lengths = (np.array((29, 31)) * sizes).round().astype(np.int64).clip(1, 256)
    offsets = np.concatenate([np.zeros((1, 2), np.int64), lengths.cumsum(0)])
    return Pairs(np.zeros(1, np.uint16), offsets[:, 0], np.zeros(1, np.uint16), offsets[:, 1])


def test_pack_shifts_targets() -> None:
    pairs = pairs_of([(2, 3), (1, 4), (3, 1), (2, 2)])
    batch = pack(pairs, np.array([2, 0, 3]))
    assert isinstance(batch.src_layout, PackedLayout)
    assert isinstance(batch.tgt_layout, PackedLayout)
    assert batch.src.tolist() == [13, 14, 15, 10, 11, 16, 17]
    assert batch.src_layout.cu_seqlens.tolist() == [0, 3, 5, 7]
    assert batch.tgt_out.tolist() == [1007, 1000, 1001, 1002, 1008, 1009]
    assert batch.tgt_in.tolist() == [BOS_ID, BOS_ID, 1000, 1001, BOS_ID, 1008]
    assert batch.tgt_layout.cu_seqlens.tolist() == [0, 1, 4, 6]
    assert batch.src_layout.max_seqlen == batch.tgt_layout.max_seqlen == 3


def test_rectangle_cuts_at_longer_pairs() -> None:
    assert padding_cuts(np.array([1, 3, 4, 5, 5, 8, 9, 40])) == (2, 5, 7)
    assert padding_cuts(np.array([30, 31, 40, 41])) == ()
    batch = pack(pairs_of([(2, 1), (3, 9), (1, 2)]), np.array([0, 2, 1]))
    assert isinstance(batch.src_layout, PackedLayout)
    assert isinstance(batch.tgt_layout, PackedLayout)
    assert batch.src_layout.cuts == batch.tgt_layout.cuts == (2,)
