"""Ensembles against the mean of probabilities that whole prefixes have in each model."""

import math
from collections.abc import Iterator

import pytest
import torch
from models import tiny
from torch import Tensor

from nmtkit.decoding.beam_search import beam_search
from nmtkit.decoding.ensemble import Ensemble, log_mean_probability
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.translator import translate_ids
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

N_TOKENS = 15
DECODING = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
SOURCES = [[5, 6, EOS_ID], [9, 4, 7, 4, 11, EOS_ID], [EOS_ID], [8, EOS_ID]]


def models_of(*n_rows: int) -> list[Transformer]:
    models = []
    for seed, n in enumerate(n_rows):
        torch.manual_seed(seed)
        model = Transformer(tiny(n_layers=1 + seed % 2, tie_embeddings=False), n)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
        model.output_matrix.data.mul_(2)
        models.append(accelerate(model.eval()))
    return models


class MeanOfWholePrefixes:
    """Runs each model on every prefix, and averages what it makes of the next token."""

    def __init__(self, models: list[Transformer], source: list[int]) -> None:
        self.models, self.source = models, source
        self.prefixes: list[list[int]] = [[]]

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        newest = tokens[0].tolist()
        self.prefixes = [[*old, new] for old, new in zip(self.prefixes, newest, strict=True)]
        return iter([torch.stack([self.next_token(prefix) for prefix in self.prefixes])[None]])

    def next_token(self, prefix: list[int]) -> Tensor:
        src, tgt = (PackedLayout.of_lengths([len(ids)]) for ids in (self.source, prefix))
        probs = [
            (model(torch.tensor(self.source), src, torch.tensor(prefix), tgt)[-1]
            @ model.output_matrix.t()).softmax(-1)[:N_TOKENS]
            for model in self.models
        ]  # fmt: skip
        log_probs = torch.stack(probs).mean(0).log()
        log_probs[[PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
        return log_probs

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        assert sentences.tolist() == [0]
        self.prefixes = [self.prefixes[beam] for beam in beams[0].tolist()]


def test_ensemble_finds_what_the_mean_probability_says_and_forced_decoding_agrees() -> None:
    models = models_of(16, 24, 16)
    found = translate_ids(
        models[0],
        SOURCES,
        DECODING,
        n_tokens=N_TOKENS,
        n_best=1,
        progress=lambda _: None,
        others=models[1:],
    )
    for source, (ours,) in zip(SOURCES, found, strict=True):
        with torch.inference_mode():
            ((theirs,),) = beam_search(
                MeanOfWholePrefixes(models, source),
                torch.tensor([len(source) - 1]),
                DECODING,
            )
        assert ours.tokens == theirs.tokens
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)
        (forced,) = force_ids(models[0], [source], [ours.tokens], align=True, others=models[1:])
        assert sum(forced.log_probs) == pytest.approx(ours.log_prob, abs=1e-4)
    alone = [force_ids(each, SOURCES, [[5]] * 4, align=False)[0].log_probs for each in models]
    assert len({round(log_probs[0], 3) for log_probs in alone}) == 3


def test_mean_is_that_of_probabilities_and_never_above_0() -> None:
    first, second = torch.tensor([0.2, 0.8, 0.0]), torch.tensor([0.6, 0.4])
    mean = log_mean_probability([first.log(), second.log()])
    torch.testing.assert_close(mean, torch.tensor([0.4, 0.6]).log())
    assert log_mean_probability([torch.zeros(2)] * 3).tolist() == [0, 0]
    nothing = torch.full((1,), -torch.inf)
    assert log_mean_probability([nothing, nothing]).item() == -math.inf


def test_all_models_are_reordered() -> None:
    class Recording:
        def __init__(self) -> None:
            self.kept: list[list[int]] = []

        def step(self, tokens: Tensor) -> Iterator[Tensor]:
            return iter([torch.zeros(*tokens.shape, 2)])

        def reorder(self, sentences: Tensor, beams: Tensor) -> None:
            self.kept.append([*sentences.tolist(), *beams.flatten().tolist()])

    models = [Recording(), Recording()]
    Ensemble(models).reorder(torch.tensor([1]), torch.tensor([[2, 0]]))
    assert [model.kept for model in models] == [[[1, 2, 0]]] * 2
