"""Attention over packed rows, against torch's own on one sentence after the other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.model import attention as packed
from nmtkit.model.attention import attention, packed_attention
from nmtkit.model.packing import Layout

HEADS, D_K, D_V = 3, 4, 5
LONGEST = 256  # of every recipe: max_positions

# Of each sentence the length of its target and of its source, and whether it begins a rectangle.
sentences_and_cuts = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 8), st.booleans()), min_size=1, max_size=7
)


def layouts(sentences: list[tuple[int, int, bool]]) -> tuple[Layout, Layout]:
    cuts = tuple(i for i, (*_, begins) in enumerate(sentences) if begins and i > 0)
    tgt, src, _ = zip(*sentences, strict=True)
    return Layout.of_lengths(tgt, cuts), Layout.of_lengths(src, cuts)


def random_rows(tgt: Layout, src: Layout, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, the latter two side by side in one projection."""
    torch.manual_seed(1)
    q = torch.randn(tgt.n_tokens, HEADS, D_K, dtype=dtype, requires_grad=True)
    merged = torch.randn(src.n_tokens, HEADS * (D_K + D_V), dtype=dtype, requires_grad=True)
    k, v = (
        torch.unflatten(each, 1, (HEADS, -1))
        for each in torch.split(merged, [HEADS * D_K, HEADS * D_V], 1)
    )
    return q, k, v


def sentence_by_sentence(
    q: Tensor, k: Tensor, v: Tensor, tgt: Layout, src: Layout, *, causal: bool
) -> Tensor:
    attended, t, s = [], 0, 0
    for tgt_length, src_length in zip(tgt.lengths.tolist(), src.lengths.tolist(), strict=True):
        one_q, one_k, one_v = (
            each.transpose(0, 1)
            for each in (q[t : t + tgt_length], k[s : s + src_length], v[s : s + src_length])
        )
        attended.append(F.scaled_dot_product_attention(one_q, one_k, one_v, is_causal=causal))
        t, s = t + tgt_length, s + src_length
    return torch.cat([each.transpose(0, 1) for each in attended])


def check(tgt: Layout, src: Layout, *, causal: bool, dtype: torch.dtype, atol: float) -> None:
    q, k, v = random_rows(tgt, src, dtype)
    weights = torch.randn(tgt.n_tokens, HEADS, D_V, dtype=dtype)
    actual = packed_attention(q, k, v, tgt, src, causal=causal)
    expected = sentence_by_sentence(q, k, v, tgt, src, causal=causal)
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


@given(sentences_and_cuts, st.booleans())
def test_to_its_own_sentence_equals_torch_forward_and_backward(
    sentences: list[tuple[int, int, bool]], causal: bool
) -> None:
    tgt, _ = layouts(sentences)
    check(tgt, tgt, causal=causal, dtype=torch.float64, atol=1e-12)


# bfloat16 has 8 bits: values of 1 to 4 are off by up to 0.008, and both sides round differently.
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("causal", [False, True])
def test_longest_and_shortest_sentences_together(
    causal: bool, dtype: torch.dtype, atol: float
) -> None:
    layout = Layout.of_lengths([1, 2, 31, LONGEST, 1], cuts=(2,))
    check(layout, layout, causal=causal, dtype=dtype, atol=atol)


def test_its_gradient_is_that_of_finite_differences() -> None:
    tgt, src = layouts([(3, 2, False), (1, 4, False), (5, 1, True), (2, 2, False)])
    q, k, v = (each.detach().requires_grad_() for each in random_rows(tgt, src, torch.float64))
    assert torch.autograd.gradcheck(
        lambda q, k, v: packed_attention(q, k, v, tgt, src, causal=False), (q, k, v)
    )


def test_equation_1_as_it_is_written() -> None:
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    mask = torch.tensor([True, False, True, True, False])
    scores = torch.einsum("bqd,bkd->bqk", q, k) / 2.0
    weights = scores[..., mask].exp() / scores[..., mask].exp().sum(-1, keepdim=True)
    torch.testing.assert_close(attention(q, k, v, mask), weights @ v[:, mask])


def test_the_fused_kernel_is_not_asked_for_the_same_bits_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def kernel(q: Tensor, *_: object, **__: object) -> Tensor:
        asked.append(q.shape)
        return q

    monkeypatch.setattr(packed, "has_fused_kernel", lambda *_: True)
    monkeypatch.setattr(packed, "varlen_attn", kernel)
    tgt, src = layouts([(3, 2, False), (1, 4, False)])
    q, k, v = random_rows(tgt, src, torch.float32)
    try:
        torch.use_deterministic_algorithms(True)
        attended = packed_attention(q, k, v, tgt, src, causal=False)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not asked
    assert attended.shape == (4, HEADS, D_V)
    packed_attention(q, k, v, tgt, src, causal=False)
    assert asked == [q.shape]
