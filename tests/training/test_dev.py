"""Evaluations on the development set."""

import math

import pytest
import torch
from torch import Tensor
from trainers import CPU, corpus, model_of

from nmtkit.corpus.special_tokens import BOS_ID
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.training.batches import Pairs
from nmtkit.training.loop import perplexity


def mean_nll_by_hand(model: Transformer, pairs: Pairs) -> float:
    """The mean negative log-likelihood, one sentence and one probability at a time."""
    total = 0.0
    for i in range(len(pairs.src_lengths)):
        src = pairs.src_ids[pairs.src_offsets[i] : pairs.src_offsets[i + 1]].tolist()
        tgt = pairs.tgt_ids[pairs.tgt_offsets[i] : pairs.tgt_offsets[i + 1]].tolist()
        hidden: Tensor = model(
            torch.tensor(src),
            PackedLayout.from_lengths([len(src)]),
            torch.tensor([BOS_ID, *tgt[:-1]]),
            PackedLayout.from_lengths([len(tgt)]),
        )
        for logits, token in zip((hidden @ model.output_matrix.t()).tolist(), tgt, strict=True):
            peak = max(logits)
            log_sum = math.log(sum(math.exp(logit - peak) for logit in logits))
            total -= logits[token] - peak - log_sum
    return total / int(pairs.tgt_lengths.sum())


@pytest.mark.parametrize("max_tokens", [9, 1_000])
def test_perplexity_by_hand(max_tokens: int) -> None:
    model = model_of(dropout=0.3)
    pairs = corpus(20, seed=2)
    found = perplexity(model, pairs, device=CPU, max_tokens=max_tokens)
    assert found == pytest.approx(math.exp(mean_nll_by_hand(model.eval(), pairs)), rel=1e-5)
