"""Attention in bins, against equation 1 with a mask over the whole rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.fast import bins
from nmtkit.fast.bins import Bins, attend_in_bins
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import attention, visible, window_of

SIZE = 8
HEADS = 2
pairs_of_lengths = st.lists(
    st.tuples(st.integers(1, SIZE), st.integers(1, SIZE)), min_size=1, max_size=9
)


@given(
    pairs_of_lengths, st.booleans(), st.booleans(), st.sampled_from([None, 1, 4]), st.integers(2, 5)
)
def test_bins_equal_equation_1_forward_and_backward(
    lengths: list[tuple[int, int]], is_cross: bool, causal: bool, neighbours: int | None, d_v: int
) -> None:
    tgt, src = (PackedLayout.of_lengths(side) for side in zip(*lengths, strict=True))
    keys = src if is_cross else tgt
    window = window_of(
        causal=causal and not is_cross, neighbourhood=None if is_cross else neighbours
    )
    q = torch.randn(len(tgt.positions), HEADS, 3, dtype=torch.float64, requires_grad=True)
    k, v = (
        torch.randn(len(keys.positions), HEADS, width, dtype=torch.float64, requires_grad=True)
        for width in (3, d_v)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bins, "SIZE", SIZE)
        placed = Bins.of(PackedMask(tgt, keys, window))
        actual = attend_in_bins(q, k, v, placed)
    mask = visible(tgt, keys, window)
    by_head = [each.transpose(0, 1) for each in (q, k, v)]
    expected = attention(by_head[0], by_head[1], by_head[2], mask).transpose(0, 1)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0.0)
    gradients = [torch.autograd.grad(each.square().sum(), (q, k, v)) for each in (actual, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=0.0)
    assert len({*placed.queries.tolist()}) == len(placed.queries)
    assert len(placed.mask) <= len(lengths)
    assert placed.mask.any(-1).all()  # no weight is 0 / 0


def test_bins_are_filled_by_the_first_sentence_that_fits() -> None:
    queries = PackedLayout.of_lengths([100, 60, 28, 60])
    keys = PackedLayout.of_lengths([90, 70, 38, 9])
    placed = Bins.of(PackedMask(queries, keys, (None, None)))
    assert placed.queries[[0, 100, 160, 188]].tolist() == [0, 128, 100, 128 + 60]
    assert placed.keys[[0, 90, 160, 198]].tolist() == [0, 128, 90, 128 + 70]
    assert placed.mask.shape == (2, 1, 128, 128)
