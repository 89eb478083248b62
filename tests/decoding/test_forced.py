"""Forced decoding and attention, compared with the plain model."""

from copy import deepcopy

import pytest
import torch
from models import random_transformer, tiny
from torch import Tensor

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding import forced
from nmtkit.decoding.forced import compute_attention_weights, force_ids, log_mean_probability
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.attention import attention_weights
from nmtkit.model.transformer import MultiHeadAttention, Transformer

SOURCES = [[5, 6, EOS_ID], [9, 4, 7, 4, 11, EOS_ID], [EOS_ID], [8, EOS_ID], [4, 4, 4, EOS_ID]]
TARGETS = [[7, 8, 9], [5], [6, 10], [], [12, 4, 9, 9, 5, 6]]
CONFIG = tiny(d_model=15, d_k=5, d_v=5, max_positions=8, positions="learned", dropout=0.5)


def by_hand(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """The log-probabilities of one target in a batch of its own."""
    layouts = (PackedLayout.from_lengths([n]) for n in (len(source), len(target) + 1))
    src_layout, tgt_layout = layouts
    tgt_in = torch.tensor([BOS_ID, *target])
    tgt_out = torch.tensor([*target, EOS_ID])
    hidden = model(torch.tensor(source), src_layout, tgt_in, tgt_layout)
    return model.logits(hidden).log_softmax(-1).take_along_dim(tgt_out[:, None], 1)[:, 0]


@pytest.mark.parametrize(("batch_tokens", "logit_rows"), [(4_096, 512), (9, 2), (1, 1)])
def test_log_probs_do_not_depend_on_batch(
    monkeypatch: pytest.MonkeyPatch, batch_tokens: int, logit_rows: int
) -> None:
    monkeypatch.setattr(forced, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(forced, "LOGIT_ROWS", logit_rows)
    plain = random_transformer(CONFIG, 20, seed=3)
    # The model is in training mode: forced decoding must not use dropout.
    ratings = force_ids([accelerate(deepcopy(plain))], SOURCES, TARGETS, align=False)
    for rating, source, target in zip(ratings, SOURCES, TARGETS, strict=True):
        expected = by_hand(plain.eval(), source, target)
        torch.testing.assert_close(torch.tensor(rating.log_probs), expected, rtol=0, atol=1e-5)
        assert rating.links == []


def test_links_follow_attention_maximum() -> None:
    model = accelerate(random_transformer(CONFIG, 20, seed=2))
    # Sharper attention has a clear maximum.
    model.decoder[-1].get_parameter("cross_attention.q.weight").data.mul_(9)
    ratings = force_ids([model], SOURCES, TARGETS, align=True)
    chosen = set()
    for rating, source, target in zip(ratings, SOURCES, TARGETS, strict=True):
        weights = compute_attention_weights(model, source, target)["cross"][-1].mean(0)[:-1, :-1]
        attended_to = weights.argmax(1).tolist() if len(source) > 1 else []
        assert rating.links == list(zip(attended_to, range(len(target)), strict=False))
        chosen |= set(attended_to)
    assert len(chosen) > 2


@pytest.mark.parametrize("n_models", [2, 7])  # with seven, the logarithms round to above 0
def test_mean_of_certain_models_is_one(n_models: int) -> None:
    assert log_mean_probability([torch.zeros(1)] * n_models).tolist() == [0.0]


# Attention

SRC = [9, 8, 7, 11, 13, EOS_ID]
TGT = [5, 6, 14]


def test_weights_equal_plain_model() -> None:
    model = random_transformer(CONFIG, 20, seed=3).eval()
    seen: list[Tensor] = []

    def watched(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, _dropout: float) -> Tensor:
        seen.append(attention_weights(q, k, mask))
        return seen[-1] @ v

    found = compute_attention_weights(accelerate(deepcopy(model)), SRC, TGT)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attention = watched
    by_hand(model, SRC, TGT)
    layers = {"encoder": seen[:2], "decoder": seen[2::2], "cross": seen[3::2]}
    for kind, expected in layers.items():
        torch.testing.assert_close(found[kind], torch.stack(expected), atol=1e-6, rtol=0.0)
        torch.testing.assert_close(found[kind].sum(-1), torch.ones(found[kind].shape[:-1]))
