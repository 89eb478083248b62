"""Attention over packed sequences, compared with the model's equation 1 with a full mask."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmtkit.fast import packing, padded_attention
from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.cpu import random_scale
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import Window, attention, attention_weights, attention_window, visible

HEADS = 3
D_K = 4
D_V = 5
LONGEST = 256  # max_positions of every recipe

# Of every sentence: the lengths of its target and source, and whether it begins a rectangle.
sentences_and_cuts = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 8), st.booleans()), min_size=1, max_size=7
)


def layouts(sentences: list[tuple[int, int, bool]]) -> tuple[PackedLayout, PackedLayout]:
    cuts = tuple(i for i, (*_, begins) in enumerate(sentences) if begins and i > 0)
    tgt, src, _ = zip(*sentences, strict=True)
    return PackedLayout.from_lengths(tgt, cuts), PackedLayout.from_lengths(src, cuts)


def random_rows(tgt: PackedLayout, src: PackedLayout) -> list[Tensor]:
    """Queries, keys and values by head; keys and values are views of one merged projection."""
    torch.manual_seed(1)
    n_tgt = len(tgt.positions)
    n_src = len(src.positions)
    double = torch.float64
    q = torch.randn(n_tgt, HEADS, D_K, dtype=double, requires_grad=True)
    merged = torch.randn(n_src, HEADS * (D_K + D_V), dtype=double, requires_grad=True)
    keys, values = torch.split(merged, [HEADS * D_K, HEADS * D_V], 1)
    k = torch.unflatten(keys, 1, (HEADS, -1))
    v = torch.unflatten(values, 1, (HEADS, -1))
    return [x.transpose(0, 1) for x in (q, k, v)]


def assert_same(found: Tensor, expected: Tensor, rows: list[Tensor]) -> None:
    """Compare outputs and gradients."""
    weights = torch.randn_like(expected)
    found_gradients = torch.autograd.grad((found * weights).sum(), rows)
    expected_gradients = torch.autograd.grad((expected * weights).sum(), rows)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0.0)
    for mine, theirs in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=4e-12, rtol=0.0)


def check(tgt: PackedLayout, src: PackedLayout, window: Window) -> None:
    """Compare fast attention with equation 1."""
    q, k, v = rows = random_rows(tgt, src)
    expected = attention(q, k, v, visible(tgt, src, window))
    assert_same(fast_attention(q, k, v, PackedMask(tgt, src, window)), expected, rows)


@given(sentences_and_cuts)
def test_cross_attention_equals_equation_1(sentences: list[tuple[int, int, bool]]) -> None:
    check(*layouts(sentences), attention_window(causal=False))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.just(1), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
    st.none() | st.integers(1, 20),
    st.integers(1, 5),
)
def test_self_attention_equals_equation_1(
    sentences: list[tuple[int, int, bool]], causal: bool, neighbourhood: int | None, block: int
) -> None:
    tgt, _ = layouts(sentences)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MIN_BLOCK", block)  # so that long sentences are split into blocks
        check(tgt, tgt, attention_window(causal=causal, neighbourhood=neighbourhood))


def test_blocks_have_only_visible_keys() -> None:
    layout = PackedLayout.from_lengths([1, LONGEST, 31, LONGEST - 1], cuts=(2,))
    check(layout, layout, attention_window(causal=False, neighbourhood=9))
    for queries, keys in layout.local_batches(4, 4):
        assert queries.indices.shape[1] == 32
        assert keys.indices.shape[1] == 4 + 32 + 4


@pytest.mark.parametrize("neighbourhood", [None, 3])
def test_dropout_equals_plain_attention(
    monkeypatch: pytest.MonkeyPatch, neighbourhood: int | None
) -> None:
    drawn: list[Tensor] = []

    def draw(weights: Tensor, p: float) -> Tensor:
        drawn.append(random_scale(weights, p))
        return drawn[-1]

    monkeypatch.setattr(padded_attention, "random_scale", draw)
    lengths = [5, 2, 7, 4]
    window = attention_window(causal=True, neighbourhood=neighbourhood)
    layout = PackedLayout.from_lengths(lengths, cuts=(1, 3))
    q, k, v = rows = random_rows(layout, layout)
    found = fast_attention(q, k, v, PackedMask(layout, layout, window), 0.4)
    scales: list[Tensor] = []
    for group in drawn:
        scales += torch.split(group, HEADS)
    assert sum(int((scale == 0.0).sum()) for scale in scales) > 0
    weights = attention_weights(q, k, visible(layout, layout, window))
    scale = torch.zeros_like(weights)
    start = 0
    for drawn_scale, n in zip(scales, lengths, strict=True):
        scale[:, start : start + n, start : start + n] = drawn_scale[:, :n, :n]
        start += n
    assert_same(found, (weights * scale) @ v, rows)
