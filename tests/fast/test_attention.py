"""Attention over packed rows, against torch's own on one sentence after the other."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.fast import accelerate, packing, rectangles
from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.cpu import random_scale
from nmtkit.fast.gpu import has_flash_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import window_of

HEADS, D_K, D_V = 3, 4, 5
LONGEST = 256  # of every recipe: max_positions

# Of each sentence the length of its target and of its source, and whether it begins a rectangle.
sentences_and_cuts = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 8), st.booleans()), min_size=1, max_size=7
)


def layouts(sentences: list[tuple[int, int, bool]]) -> tuple[PackedLayout, PackedLayout]:
    cuts = tuple(i for i, (*_, begins) in enumerate(sentences) if begins and i > 0)
    tgt, src, _ = zip(*sentences, strict=True)
    return PackedLayout.of_lengths(tgt, cuts), PackedLayout.of_lengths(src, cuts)


def random_rows(
    tgt: PackedLayout, src: PackedLayout, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, the latter two side by side in one projection."""
    torch.manual_seed(1)
    q = torch.randn(len(tgt.positions), HEADS, D_K, dtype=dtype, requires_grad=True)
    merged = torch.randn(len(src.positions), HEADS * (D_K + D_V), dtype=dtype, requires_grad=True)
    k, v = (
        torch.unflatten(each, 1, (HEADS, -1))
        for each in torch.split(merged, [HEADS * D_K, HEADS * D_V], 1)
    )
    return q, k, v


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tgt: PackedLayout,
    src: PackedLayout,
    *,
    causal: bool,
    neighbourhood: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention with the tokens in the first dimension."""
    mask = PackedMask(tgt, src, window_of(causal=causal, neighbourhood=neighbourhood))
    by_head = (each.transpose(0, 1) for each in (q, k, v))
    return fast_attention(*by_head, mask, dropout).transpose(0, 1)  # type: ignore[arg-type, call-arg]


def sentence_by_sentence(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tgt: PackedLayout,
    src: PackedLayout,
    *,
    causal: bool,
    neighbourhood: int | None = None,
) -> Tensor:
    attended, t, s = [], 0, 0
    for tgt_length, src_length in zip(tgt.lengths.tolist(), src.lengths.tolist(), strict=True):
        one_q, one_k, one_v = (
            each.transpose(0, 1)
            for each in (q[t : t + tgt_length], k[s : s + src_length], v[s : s + src_length])
        )
        mask = torch.tensor(
            [
                [sees(query, key, causal=causal, r=neighbourhood) for key in range(src_length)]
                for query in range(tgt_length)
            ]
        )
        attended.append(F.scaled_dot_product_attention(one_q, one_k, one_v, mask))
        t, s = t + tgt_length, s + src_length
    return torch.cat([each.transpose(0, 1) for each in attended])


def sees(query: int, key: int, *, causal: bool, r: int | None) -> bool:
    """Whether the key is one of the r around the query, or that end with it."""
    if r is None:
        return key <= query or not causal
    first = query - r + 1 if causal else query - r // 2
    return first <= key < first + r


def check(
    tgt: PackedLayout,
    src: PackedLayout,
    *,
    causal: bool,
    dtype: torch.dtype,
    atol: float,
    neighbourhood: int | None = None,
) -> None:
    q, k, v = random_rows(tgt, src, dtype)
    weights = torch.randn(len(tgt.positions), HEADS, D_V, dtype=dtype)
    actual = packed_attention(q, k, v, tgt, src, causal=causal, neighbourhood=neighbourhood)
    expected = sentence_by_sentence(q, k, v, tgt, src, causal=causal, neighbourhood=neighbourhood)
    gradients = [
        torch.autograd.grad((result * weights).sum(), (q, k, v)) for result in (actual, expected)
    ]
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0.0)
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=4 * atol, rtol=0.0)


@given(sentences_and_cuts)
def test_to_another_sentence_equals_torch_forward_and_backward(
    sentences: list[tuple[int, int, bool]],
) -> None:
    tgt, src = layouts(sentences)
    check(tgt, src, causal=False, dtype=torch.float64, atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.just(1), st.booleans()), min_size=1, max_size=5),
    st.booleans(),
    st.none() | st.integers(1, 20),
    st.integers(1, 5),
)
def test_to_its_own_sentence_or_its_neighbourhood_equals_torch_forward_and_backward(
    sentences: list[tuple[int, int, bool]], causal: bool, neighbourhood: int | None, block: int
) -> None:
    tgt, _ = layouts(sentences)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MIN_BLOCK", block)  # so that long sentences are cut into blocks
        how: dict[str, Any] = {"causal": causal, "neighbourhood": neighbourhood}
        check(tgt, tgt, **how, dtype=torch.float64, atol=1e-12)


def test_no_block_of_a_long_sentence_has_keys_that_none_of_its_queries_sees() -> None:
    layout = PackedLayout.of_lengths([1, LONGEST, 31, LONGEST - 1], cuts=(2,))
    check(layout, layout, causal=False, neighbourhood=9, dtype=torch.float32, atol=1e-5)
    for queries, keys in layout.bands(4, 4):
        assert queries.rows.shape[1] == 32
        assert keys.rows.shape[1] == 4 + 32 + 4


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The windows that a stand-in for flash attention is asked for."""
    asked: list[tuple[int, int]] = []

    def kernel(q: Tensor, *_: object, window_size: tuple[int, int]) -> Tensor:
        asked.append(window_size)
        return q

    monkeypatch.setattr(accelerate, "has_flash_attention", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    return asked


@pytest.mark.parametrize(
    ("causal", "neighbourhood", "window"),
    [
        (False, None, (-1, -1)),
        (True, None, (-1, 0)),
        (False, 9, (4, 4)),
        (False, 4, (2, 1)),
        (False, 1, (0, 0)),
        (True, 9, (8, 0)),
    ],
)
def test_flash_attention_gets_the_neighbourhood_as_its_window(
    windows: list[tuple[int, int]],
    causal: bool,
    neighbourhood: int | None,
    window: tuple[int, int],
) -> None:
    layout = PackedLayout.of_lengths([3, 2])
    q, k, v = random_rows(layout, layout, torch.float32)
    packed_attention(q, k, v, layout, layout, causal=causal, neighbourhood=neighbourhood)
    assert windows == [window]


def test_flash_attention_is_not_asked_for_the_same_bits_each_time_nor_for_dropout(
    windows: list[tuple[int, int]],
) -> None:
    tgt, src = layouts([(3, 2, False), (1, 4, False)])
    q, k, v = random_rows(tgt, src, torch.float32)
    try:
        torch.use_deterministic_algorithms(True)
        attended = packed_attention(q, k, v, tgt, src, causal=False)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not windows
    assert attended.shape == (4, HEADS, D_V)
    cuda, half = torch.device("cuda"), torch.bfloat16
    assert has_flash_attention(cuda, half, 64, 64, 0.0)
    assert not has_flash_attention(cuda, half, 64, 64, 0.1)


# Attention dropout


@pytest.mark.parametrize("neighbourhood", [None, 3])
def test_dropout_equals_plain_attention_with_the_same_mask(
    monkeypatch: pytest.MonkeyPatch, neighbourhood: int | None
) -> None:
    drawn: list[Tensor] = []

    def draw(weights: Tensor, p: float) -> Tensor:
        drawn.append(random_scale(weights, p))
        return drawn[-1]

    monkeypatch.setattr(rectangles, "random_scale", draw)
    lengths = [5, 2, 7, 4]
    layout = PackedLayout.of_lengths(lengths, cuts=(1, 3))
    q, k, v = random_rows(layout, layout, torch.float64)
    how: dict[str, Any] = {"causal": True, "neighbourhood": neighbourhood}
    actual = packed_attention(q, k, v, layout, layout, **how, dropout=0.4)
    scales = [each for group in drawn for each in torch.split(group, HEADS)]
    assert sum(int((scale == 0.0).sum()) for scale in scales) > 0
    plain = []
    rows = zip(*(torch.split(each, lengths) for each in (q, k, v)), scales, strict=True)
    for one_q, one_k, one_v, scale in rows:
        n = len(one_q)
        scores = torch.einsum("qhd,khd->hqk", one_q, one_k) / D_K**0.5
        mask = torch.tensor(
            [[sees(i, j, causal=True, r=neighbourhood) for j in range(n)] for i in range(n)]
        )
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1) * scale[:, :n, :n]
        plain.append(torch.einsum("hqk,khd->qhd", weights, one_v))
    expected = torch.cat(plain)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0.0)
    gradients = [torch.autograd.grad((result**2).sum(), (q, k, v)) for result in (actual, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=0.0)
