"""Equation 1 and the attention mask, compared with plain implementations."""

import pytest
import torch

from nmtkit.fast.packing import PackedLayout
from nmtkit.model.attention import attention, attention_weights, attention_window, visible


def test_attention_equals_equation_1() -> None:
    q = torch.randn(2, 3, 4)
    k = torch.randn(2, 5, 4)
    v = torch.randn(2, 5, 6)
    mask = torch.tensor([True, False, True, True, False])
    scores = torch.einsum("bqd,bkd->bqk", q, k) / 2.0
    weights = scores[..., mask].exp() / scores[..., mask].exp().sum(-1, keepdim=True)
    torch.testing.assert_close(attention(q, k, v, mask), weights @ v[:, mask])


def test_dropout_zeroes_and_scales() -> None:
    q = torch.randn(7, 4)
    k = torch.randn(50, 4)
    torch.manual_seed(2)
    dropped = attention(q, k, torch.eye(50), None, dropout=0.25)
    is_kept = dropped != 0
    assert 0.65 < is_kept.double().mean() < 0.85
    expected = attention_weights(q, k, None) / 0.75
    torch.testing.assert_close(dropped[is_kept], expected[is_kept])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("neighbourhood", [None, 1, 4, 5])
def test_visible_is_sentence_and_window(causal: bool, neighbourhood: int | None) -> None:
    lengths = [3, 1, 9]
    layout = PackedLayout.from_lengths(lengths)
    tokens = [(sentence, i) for sentence, n in enumerate(lengths) for i in range(n)]

    def sees(query: tuple[int, int], key: tuple[int, int]) -> bool:
        if query[0] != key[0]:
            return False
        if neighbourhood is None:
            return key[1] <= query[1] or not causal
        first = query[1] - neighbourhood + 1 if causal else query[1] - neighbourhood // 2
        return first <= key[1] < first + neighbourhood

    expected = torch.tensor([[sees(query, key) for key in tokens] for query in tokens])
    window = attention_window(causal=causal, neighbourhood=neighbourhood)
    assert torch.equal(visible(layout, layout, window), expected)
