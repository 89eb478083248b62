"""Forced decoding against the plain model, the search and torch's own attention."""

import pytest
import torch
from models import tiny
from torch import Tensor, nn

from nmtkit.decoding import forced
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.translator import translate_ids
from nmtkit.errors import UserError
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID

N_ROWS = 20
SOURCES = [[5, 6, EOS_ID], [9, 4, 7, 4, 11, EOS_ID], [EOS_ID], [8, EOS_ID], [4, 4, 4, EOS_ID]]
TARGETS = [[7, 8, 9], [5], [6, 10], [], [12, 4, 9, 9, 5, 6]]


def model_of(seed: int) -> Transformer:
    """A model with choices of its own, in training mode, where dropout would disturb it."""
    torch.manual_seed(seed)
    model = Transformer(tiny(dropout=0.5, tie_embeddings=False), N_ROWS)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    return accelerate(model)


def by_hand(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """The log-probabilities of one target, alone in its batch."""
    model.eval()
    src_layout, tgt_layout = (
        PackedLayout.of_lengths([len(source)]),
        PackedLayout.of_lengths([len(target) + 1]),
    )
    tgt_in, tgt_out = torch.tensor([BOS_ID, *target]), torch.tensor([*target, EOS_ID])
    hidden = model(torch.tensor(source), src_layout, tgt_in, tgt_layout)
    log_probs: Tensor = (hidden @ model.output_matrix.t()).log_softmax(-1)
    return log_probs.take_along_dim(tgt_out[:, None], 1)[:, 0]


@pytest.mark.parametrize(("batch_tokens", "logit_rows"), [(4_096, 512), (9, 2), (1, 1)])
def test_log_probabilities_are_those_of_each_pair_alone(
    monkeypatch: pytest.MonkeyPatch, batch_tokens: int, logit_rows: int
) -> None:
    monkeypatch.setattr(forced, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(forced, "LOGIT_ROWS", logit_rows)
    model = model_of(3)
    ratings = force_ids(model, SOURCES, TARGETS, align=False)
    for rating, source, target in zip(ratings, SOURCES, TARGETS, strict=True):
        expected = by_hand(model, source, target)
        torch.testing.assert_close(torch.tensor(rating.log_probs), expected, rtol=0, atol=1e-5)
        assert rating.links == []


def test_output_of_the_search_has_the_log_probability_that_the_search_reports() -> None:
    model = model_of(4)
    found = translate_ids(
        model,
        SOURCES,
        DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=5),
        n_tokens=N_ROWS,
        n_best=3,
        progress=lambda _: None,
    )
    for rank in range(3):
        hypotheses = [of_source[rank] for of_source in found]
        ratings = force_ids(model, SOURCES, [each.tokens for each in hypotheses], align=False)
        for rating, hypothesis in zip(ratings, hypotheses, strict=True):
            assert sum(rating.log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-4)
    assert len({tuple(of_source[0].tokens) for of_source in found}) > 2


def test_links_lead_to_where_the_last_layer_looks_most() -> None:
    model = model_of(9)
    model.decoder[-1].get_parameter("cross_attention.q.weight").data.mul_(9)  # looks sharply
    ratings = force_ids(model, SOURCES, TARGETS, align=True)
    chosen = set()
    for rating, source, target in zip(ratings, SOURCES, TARGETS, strict=True):
        weights = attention_by_torch(model, source, target)
        assert len(rating.links) == (len(target) if len(source) > 1 else 0)
        for tgt, (src, linked) in enumerate(rating.links):
            assert linked == tgt
            assert weights[tgt, src] == weights[tgt, :-1].max()
            chosen.add(src)
    assert len(chosen) > 2


def attention_by_torch(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """The weights (Lt, Ls) of torch.nn's attention with the weights of our last layer."""
    config, layer = model.config, model.decoder[-1]
    cross = layer.cross_attention
    theirs = nn.MultiheadAttention(config.d_model, config.n_heads, bias=False, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([cross.q.weight, cross.kv.weight]).detach()
    seen: list[tuple[Tensor, ...]] = []
    hook = cross.register_forward_hook(lambda _, args, out: seen.append((args[0], out)))
    by_hand(model, source, target)
    hook.remove()
    x, out = seen[0]
    memory = model.encode(torch.tensor(source), PackedLayout.of_lengths([len(source)]))
    theirs.out_proj.weight.data = cross.out.weight.detach()
    attended: Tensor
    weights: Tensor
    attended, weights = theirs(x[None], memory[None], memory[None])
    torch.testing.assert_close(attended[0], out, rtol=0, atol=1e-5)
    return weights[0].detach()


def test_weights_that_are_no_numbers_are_a_users_error() -> None:
    model = model_of(3)
    model.output_matrix.data.fill_(torch.nan)
    with pytest.raises(UserError, match=r"NaN instead of probabilities.* diverged"):
        force_ids(model, SOURCES, TARGETS, align=False)
