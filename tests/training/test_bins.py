"""Dense bins: the assignment of pairs, the contents and the shape."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.special_tokens import BOS_ID
from nmtkit.fast.bins import PADDING
from nmtkit.training.batches import Pairs
from nmtkit.training.bins import (
    BinShape,
    bin_batch,
    bin_length,
    bin_shape,
    fill_bins,
    first_fit_decreasing,
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
def test_first_fit_decreasing_reference(lengths: list[tuple[int, int]]) -> None:
    """The bins equal those of the textbook algorithm, written with plain lists."""
    pairs = pairs_of_lengths(lengths)
    expected: list[list[int]] = []
    for pair in sorted(range(len(lengths)), key=lambda i: -max(lengths[i])):
        for group in expected:
            sums = [sum(lengths[i][side] for i in [*group, pair]) for side in (0, 1)]
            if max(sums) <= 16:
                group.append(pair)
                break
        else:
            expected.append([pair])
    assert first_fit_decreasing(pairs, np.arange(len(lengths)), 16) == expected


@given(lengths_of_pairs, st.randoms(use_true_random=False))
def test_fill_bins_keeps_every_token(lengths: list[tuple[int, int]], random: object) -> None:
    pairs = pairs_of_lengths(lengths)
    chosen = np.arange(len(lengths))
    random.shuffle(chosen)  # type: ignore[attr-defined]
    bins = first_fit_decreasing(pairs, chosen, 16)
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
    ("longest", "length"), [(1, 16), (16, 16), (17, 32), (256, 256), (257, 512), (1_000, 1_024)]
)
def test_bin_length_is_power_of_two(longest: int, length: int) -> None:
    assert bin_length(longest) == length


def test_bin_shape_ignores_pairs_left_out() -> None:
    pairs = pairs_of_lengths([(5, 5), (20, 3), (300, 2)])
    assert bin_shape(pairs, [np.array([0, 1])], 256, 1_000, 1) == BinShape(1, 32)


@pytest.mark.parametrize(
    ("max_tokens", "n_processes", "n_bins", "n_micro_batches"),
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
def test_bin_shape_is_even(
    max_tokens: int, n_processes: int, n_bins: int, n_micro_batches: int
) -> None:
    pairs = pairs_of_lengths([(16, 16)] * 10 + [(8, 8)] * 4)
    updates = [np.arange(10, 14), np.arange(10)]  # 2 and 10 bins
    shape = bin_shape(pairs, updates, 16, max_tokens, n_processes)
    assert shape == BinShape(n_bins, 16)
    assert -(-10 // shape.n_bins) <= n_micro_batches


@pytest.mark.parametrize(("n_large", "n_bins"), [(0, 2), (2, 2), (3, 10), (40, 10)])
def test_few_updates_are_split(n_large: int, n_bins: int) -> None:
    """Up to two of 40 updates, 5 %, may need another micro-batch than memory requires."""
    pairs = pairs_of_lengths([(16, 16)] * 10)
    updates = [np.arange(10)] * n_large + [np.arange(2)] * (40 - n_large)
    assert bin_shape(pairs, updates, 16, 9_999, 1) == BinShape(n_bins, 16)


def test_bins_waste_little_of_news() -> None:
    """Sentences of the lengths of news fill bins of 256 tokens to more than 90 %."""
    generator = np.random.default_rng(1)
    lengths = generator.gamma(2.8, 10.0, (800, 1)).round() + generator.integers(-3, 4, (800, 2))
    pairs = pairs_of_lengths([(int(src), int(tgt)) for src, tgt in lengths.clip(2, 200)])
    bins = first_fit_decreasing(pairs, np.arange(800), 256)
    n_tokens = max(len(pairs.src_ids), len(pairs.tgt_ids))
    assert n_tokens / (256 * len(bins)) > 0.9
