"""Dense bins: the assignment of pairs, the contents and the shape."""

from itertools import chain, combinations, islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.special_tokens import BOS_ID
from nmtkit.fast.bins import PADDING
from nmtkit.training.batches import Ints, Pairs, updates
from nmtkit.training.bins import (
    N_RECENT_BINS,
    BinShape,
    bin_batch,
    bin_lengths,
    choose_shapes,
    fill_bins,
    pack_bins,
    split_into_bins,
    trial_bins,
)
from nmtkit.training.loss import NO_TARGET


def pairs_of_lengths(lengths: list[tuple[int, int]]) -> Pairs:
    src = np.cumsum([0, *(src for src, _ in lengths)])
    tgt = np.cumsum([0, *(tgt for _, tgt in lengths)])
    return Pairs(
        np.arange(100, 100 + src[-1], dtype=np.uint16),
        src,
        np.arange(5_000, 5_000 + tgt[-1], dtype=np.uint16),
        tgt,
    )


lengths_of_pairs = st.lists(
    st.tuples(st.integers(1, 16), st.integers(1, 16)), min_size=1, max_size=40
)


@given(lengths_of_pairs)
def test_pack_bins_within_bound(lengths: list[tuple[int, int]]) -> None:
    """Every pair is in one bin with space for it; no pair of bins could be one."""
    pairs = pairs_of_lengths(lengths)
    bins = pack_bins(pairs, np.arange(len(lengths)), 16)
    assert sorted(chain.from_iterable(bins)) == list(range(len(lengths)))
    fuller_sides = []
    for group in bins:
        fuller_sides.append(max(sum(lengths[i][side] for i in group) for side in (0, 1)))
    assert max(fuller_sides) <= 16
    if len(bins) <= N_RECENT_BINS:
        assert all(first + second > 16 for first, second in combinations(fuller_sides, 2))


@pytest.mark.parametrize("like_lengths", [True, False])
@pytest.mark.parametrize("length", [128, 256])
def test_pack_bins_equals_first_fit(like_lengths: bool, length: int) -> None:
    """Updates of news need at most 1.5 % more bins than first-fit decreasing finds."""
    pairs = news_like_pairs()
    chosen = updates(
        pairs,
        seed=1,
        max_length=length,
        src_tokens=25_000,
        tgt_tokens=25_000,
        like_lengths=like_lengths,
    )
    n_bins = n_expected = 0
    for update in islice(chosen, 12):
        n_bins += len(pack_bins(pairs, update.pairs, length))
        n_expected += len(first_fit_decreasing(pairs, update.pairs, length))
    assert n_bins <= 1.015 * n_expected


def first_fit_decreasing(pairs: Pairs, chosen: Ints, length: int) -> list[list[int]]:
    """Return the bins of the textbook algorithm."""
    longest_sides = np.maximum(pairs.src_lengths, pairs.tgt_lengths)
    bins: list[list[int]] = []
    space: list[list[int]] = []
    for pair in sorted(chosen.tolist(), key=lambda pair: -longest_sides[pair]):
        sizes = int(pairs.src_lengths[pair]), int(pairs.tgt_lengths[pair])
        fits = [sizes[0] <= left[0] and sizes[1] <= left[1] for left in space]
        if not any(fits):
            bins.append([])
            space.append([length, length])
        number = fits.index(True) if any(fits) else -1
        bins[number].append(pair)
        space[number][0] -= sizes[0]
        space[number][1] -= sizes[1]
    return bins


def news_like_pairs() -> Pairs:
    """20,000 pairs with the lengths of news in subwords: gamma-distributed, up to 256."""
    generator = np.random.default_rng(0)
    sizes = generator.gamma(2.8, 1 / 2.8, (20_000, 1)) * generator.normal(1.0, 0.15, (20_000, 2))
    lengths = (np.array((29, 31)) * sizes).round().astype(np.int64).clip(1, 256)
    offsets = np.concatenate([np.zeros((1, 2), np.int64), lengths.cumsum(0)])
    return Pairs(np.zeros(1, np.uint16), offsets[:, 0], np.zeros(1, np.uint16), offsets[:, 1])


@given(lengths_of_pairs, st.randoms(use_true_random=False))
def test_fill_bins_keeps_every_token(lengths: list[tuple[int, int]], random: object) -> None:
    pairs = pairs_of_lengths(lengths)
    chosen = np.arange(len(lengths))
    random.shuffle(chosen)  # type: ignore[attr-defined]
    bins = pack_bins(pairs, chosen, 16)
    batch = bin_batch(fill_bins(pairs, bins, BinShape(len(bins) + 1, 16)))
    found = []
    for row, group in enumerate(bins):
        for number, pair in enumerate(group, start=1):
            is_src = batch.src_layout.sentences[row] == number
            is_tgt = batch.tgt_layout.sentences[row] == number
            src = pairs.src_ids[pairs.src_offsets[pair] : pairs.src_offsets[pair + 1]].tolist()
            tgt = pairs.tgt_ids[pairs.tgt_offsets[pair] : pairs.tgt_offsets[pair + 1]].tolist()
            assert batch.src[row, is_src].tolist() == src
            assert batch.src_layout.positions[row, is_src].tolist() == list(range(len(src)))
            assert batch.tgt_out[row, is_tgt].tolist() == tgt
            assert batch.tgt_in[row, is_tgt].tolist() == [BOS_ID, *tgt[:-1]]
            assert batch.tgt_layout.positions[row, is_tgt].tolist() == list(range(len(tgt)))
            found.append(pair)
    assert sorted(found) == list(range(len(lengths)))
    is_padding = batch.tgt_layout.sentences == PADDING
    assert torch.equal(is_padding, batch.tgt_out == NO_TARGET)
    assert int((~is_padding).sum()) == len(pairs.tgt_ids)
    assert bool((batch.src_layout.sentences[-1] == PADDING).all())  # the empty bin


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [
        (1, [16]),
        (16, [16]),
        (50, [16, 32, 48, 64]),
        (248, [32, 64, 96, 128, 160, 192, 224, 256]),
        (300, [64, 128, 192, 256, 320, 384, 448, 512]),
    ],
)
def test_bin_lengths_hold_longest(longest: int, lengths: list[int]) -> None:
    assert bin_lengths(longest) == lengths


def test_shapes_ignore_pairs_left_out() -> None:
    pairs = pairs_of_lengths([(5, 5), (20, 3), (300, 2)])
    shapes = choose_shapes(pairs, [np.array([0, 1])], 256, 1_000, 1)
    assert shapes == [BinShape(1, 32)]


@pytest.mark.parametrize(
    ("max_tokens", "multiple_of", "n_bins", "n_micro_batches"),
    [
        (9_999, 1, 10, 1),  # all of the largest update
        (160, 1, 10, 1),  # exactly
        (159, 1, 5, 2),  # memory allows 9 bins, and 5 and 5 are more even than 9 and 1
        (50, 1, 3, 4),
        (9_999, 3, 4, 3),
        (48, 3, 2, 6),
        (1, 1, 1, 10),  # a single bin is always tried
    ],
)
def test_split_is_even(
    max_tokens: int, multiple_of: int, n_bins: int, n_micro_batches: int
) -> None:
    pairs = pairs_of_lengths([(16, 16)] * 10 + [(8, 8)] * 4)
    large = np.arange(10)  # 10 bins
    shapes = choose_shapes(pairs, [large], 16, max_tokens, multiple_of)
    assert shapes == [BinShape(n_bins, 16)]
    shape, parts = split_into_bins(pairs, large, shapes, multiple_of)
    assert (shape, len(parts)) == (shapes[0], n_micro_batches)
    sizes = [len(part) for part in parts]
    assert sum(sizes) == 10
    assert max(sizes) - min(sizes) <= 1


def test_split_takes_cheapest_shape() -> None:
    """Several small micro-batches or one large one, in long bins or short ones."""
    pairs = pairs_of_lengths([(16, 16)] * 400 + [(100, 100)] * 200)
    shapes = [BinShape(100, 128), BinShape(40, 112), BinShape(200, 16)]
    short = np.arange(400)
    long = np.arange(400, 600)
    expected = [
        (short[:200], BinShape(200, 16), 1),
        (short[:201], BinShape(40, 112), 1),
        (long[:40], BinShape(40, 112), 1),
        (long[:41], BinShape(40, 112), 2),
        (long[:100], BinShape(100, 128), 1),
        (long[:130], BinShape(40, 112), 4),
    ]
    for chosen, shape, n_micro_batches in expected:
        found, parts = split_into_bins(pairs, chosen, shapes, 1)
        assert (found, len(parts)) == (shape, n_micro_batches)


@pytest.mark.parametrize("like_lengths", [True, False])
@pytest.mark.parametrize("n_processes", [1, 2, 4, 8])
def test_bins_waste_little_of_news(n_processes: int, like_lengths: bool) -> None:
    """At most 1.12 positions are computed per target token, in at most six shapes."""
    pairs = news_like_pairs()
    source = updates(
        pairs,
        seed=1,
        max_length=256,
        src_tokens=25_000,
        tgt_tokens=25_000,
        like_lengths=like_lengths,
    )
    chosen = [update.pairs for update in islice(source, 70)]
    shapes = choose_shapes(pairs, chosen[:50], 256, 10**6, n_processes)
    assert len(shapes) <= 6
    n_positions = n_tokens = 0
    for indices in chosen:
        shape, parts = split_into_bins(pairs, indices, shapes, n_processes)
        assert len(parts) % n_processes == 0 or all(len(part) == 1 for part in parts)
        n_rounds = -(-len(parts) // n_processes)
        n_positions += n_rounds * n_processes * shape.n_positions
        n_tokens += int(pairs.tgt_lengths[indices].sum())
    assert n_positions <= 1.12 * n_tokens


@pytest.mark.parametrize("shape", [BinShape(3, 16), BinShape(9, 32)])
def test_trial_bins_are_filled(shape: BinShape) -> None:
    pairs = pairs_of_lengths([(40, 3), (7, 12), (30, 5), (16, 16), *[(5, 6)] * 90])
    fields = trial_bins(pairs, shape, 35)
    assert fields.shape == (7, shape.n_bins, shape.length)
    assert bool((bin_batch(fields).tgt_layout.sentences[:, 0] != PADDING).all())
