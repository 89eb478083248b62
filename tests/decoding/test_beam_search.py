"""The search against a plain-Python beam search."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmtkit.config.model import DecodingConfig
from nmtkit.decoding.beam_search import beam_search
from nmtkit.decoding.engine import Hypothesis

BOS = 1
EOS = 0


@pytest.fixture(scope="module", autouse=True)
def _small_vocabulary() -> Iterator[None]:
    """Use ids 0 and 1 for the special tokens, so that a vocabulary may have only two tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmtkit.decoding.beam_search.BOS_ID", BOS)
        patch.setattr("nmtkit.decoding.beam_search.EOS_ID", EOS)
        yield


Prefix = tuple[int, ...]
NextLogProbs = Callable[[int, Prefix], list[float]]  # arguments: key of a sentence, prefix


@dataclass
class PrefixModel:
    """A model that keeps every beam's whole prefix, so that wrongly reordered beams are noticed."""

    next_log_probs: NextLogProbs
    sentences: list[int]
    prefixes: list[list[Prefix]] = field(init=False)  # with the BOS

    def __post_init__(self) -> None:
        self.prefixes = [[()] for _ in self.sentences]

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        log_probs = []
        for row, newest in enumerate(tokens.tolist()):
            pairs = zip(self.prefixes[row], newest, strict=True)
            beams = [(*prefix, token) for prefix, token in pairs]
            assert {prefix[0] for prefix in beams} == {BOS}
            sentence = self.sentences[row]
            log_probs.append([self.next_log_probs(sentence, prefix[1:]) for prefix in beams])
            self.prefixes[row] = beams
        return iter(torch.split(torch.tensor(log_probs), 2))

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        kept = sentences.tolist()
        self.sentences = [self.sentences[row] for row in kept]
        prefixes = []
        for row, order in zip(kept, beams.tolist(), strict=True):
            prefixes.append([self.prefixes[row][beam] for beam in order])
        self.prefixes = prefixes


def search(
    next_log_probs: NextLogProbs,
    max_lengths: list[int],
    beam_size: int,
    alpha: float,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    return beam_search(
        PrefixModel(next_log_probs, list(range(len(max_lengths)))),
        torch.tensor(max_lengths),
        DecodingConfig(beam_size=beam_size, length_penalty=alpha, max_extra_tokens=0),
        n_best,
    )


def random_model(
    seed: int, vocab: int, spread: float = 1.0, impossible: float = 0.0
) -> NextLogProbs:
    """Draw a distribution for every prefix; `impossible` is the share of impossible tokens."""

    @cache
    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        assert all(token < vocab for token in prefix)
        rng = random.Random(f"{seed} {sentence} {prefix}")
        logits = torch.tensor([rng.gauss(0, spread) for _ in range(vocab)])
        barred = torch.tensor([rng.random() < impossible for _ in range(vocab)])
        barred[rng.randrange(vocab)] = False
        values: list[float] = logits.masked_fill(barred, -math.inf).log_softmax(0).tolist()
        return values

    return next_log_probs


def tied_model(seed: int, vocab: int) -> NextLogProbs:
    """Draw from few values, so that many sums are exactly equal."""

    @cache
    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        rng = random.Random(f"{seed} {sentence} {prefix}")
        values = [0.0, -0.5, -1.0, -2.0, -math.inf]
        weights = [1, 1, 2, 4, vocab / 4]
        return rng.choices(values, weights, k=vocab)

    return next_log_probs


def one_hot(vocab: int, token: int) -> list[float]:
    return [0.0 if other == token else -math.inf for other in range(vocab)]


def penalized(log_prob: float, length: int, alpha: float) -> float:
    return log_prob / math.pow((5 + length) / 6, alpha)


def plain_search(
    next_log_probs: NextLogProbs, sentence: int, max_length: int, beam_size: int, alpha: float
) -> list[tuple[Prefix, float]]:
    """Search one sentence with lists and loops, always up to the maximum length."""
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    finished: list[tuple[Prefix, float]] = []
    for length in range(max_length + 1):
        candidates = []
        for prefix, log_prob in live:
            for token, value in enumerate(next_log_probs(sentence, prefix)):
                if length < max_length or token == EOS:
                    candidates.append(((*prefix, token), log_prob + value))
        candidates.sort(key=lambda pair: -pair[1])  # stable: ties are sorted by beam, then by token
        candidates = [pair for pair in candidates[: 2 * beam_size] if pair[1] > -math.inf]
        live = [pair for pair in candidates if pair[0][-1] != EOS][:beam_size]
        finished += [
            (prefix[:-1], penalized(log_prob, length + 1, alpha))
            for prefix, log_prob in candidates
            if prefix[-1] == EOS
        ]
    return sorted(finished, key=lambda pair: -pair[1])[:beam_size]


def assert_same(found: list[Hypothesis], expected: list[tuple[Prefix, float]]) -> None:
    assert [tuple(hypothesis.tokens) for hypothesis in found] == [tokens for tokens, _ in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(
        [score for _, score in expected], rel=1e-5, abs=1e-6
    )


@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(2, 7),
    max_lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    beam_size=st.integers(1, 5),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 1.8]),
    impossible=st.sampled_from([0.0, 0.3, 0.7]),
    data=st.data(),
)
def test_search_equals_plain_search(
    seed: int,
    vocab: int,
    max_lengths: list[int],
    beam_size: int,
    alpha: float,
    impossible: float,
    data: st.DataObject,
) -> None:
    n_best = data.draw(st.integers(1, beam_size))
    model = random_model(seed, vocab, spread=2.0, impossible=impossible)
    found = search(model, max_lengths, beam_size, alpha, n_best)
    for sentence, max_length in enumerate(max_lengths):
        expected = plain_search(model, sentence, max_length, beam_size, alpha)
        assert_same(found[sentence], expected[:n_best])
        for hypothesis in found[sentence]:
            score = penalized(hypothesis.log_prob, len(hypothesis.tokens) + 1, alpha)
            assert hypothesis.score == pytest.approx(score, rel=1e-6, abs=1e-6)


# The search for the best tokens has blocks of 64: one block, and ten and a remainder.
@pytest.mark.parametrize("vocab", [2, 5, 64, 700])
@pytest.mark.parametrize("seed", range(4))
def test_ties_keep_beam_and_token_order(vocab: int, seed: int) -> None:
    model = tied_model(seed, vocab)
    max_lengths = [4, 6, 3]
    found = search(model, max_lengths, beam_size=4, alpha=0.0, n_best=4)
    for sentence, max_length in enumerate(max_lengths):
        assert_same(found[sentence], plain_search(model, sentence, max_length, 4, 0.0))


def test_impossible_hypotheses_are_dropped() -> None:
    one_way = search(lambda _, prefix: one_hot(5, EOS if len(prefix) == 2 else 3), [9], 4, 0.6, 4)
    assert one_way == [[Hypothesis([3, 3], score=0.0, log_prob=0.0)]]
    no_way = search(lambda _sentence, _prefix: one_hot(5, 3), [9, 2], 4, 0.6, 4)
    assert no_way == [[], []]


def test_nan_or_no_sentences_give_nothing() -> None:
    assert search(lambda _sentence, _prefix: [math.nan] * 5, [9, 2], 4, 0.6) == [[], []]
    assert search(random_model(1, 4), [], beam_size=4, alpha=0.6) == []


@pytest.mark.parametrize("max_length", [1, 3, 9])
def test_max_length_bounds_all_sentences(max_length: int) -> None:
    """As if each source were as much shorter."""
    model = random_model(5, vocab=7)
    lengths = [2, 4, 6]
    decoding = DecodingConfig(
        beam_size=3, length_penalty=0.8, max_extra_tokens=0, max_length=max_length
    )
    found = beam_search(PrefixModel(model, [0, 1, 2]), torch.tensor(lengths), decoding)
    expected = search(model, [min(length, max_length) for length in lengths], 3, 0.8)
    assert found == expected
    assert max(len(best.tokens) for (best,) in found) <= max_length


def test_bound_has_penalty_with_eos() -> None:
    """A longer hypothesis wins only by the penalty of its EOS, which the bound must include."""

    def model(_: int, prefix: Prefix) -> list[float]:
        if prefix:
            return one_hot(5, EOS)
        return [{EOS: -1.0, 3: -1.1}.get(token, -math.inf) for token in range(5)]

    (found,) = search(model, [1], beam_size=1, alpha=1.0)
    assert [hypothesis.tokens for hypothesis in found] == [[3]]
    assert_same(found, plain_search(model, 0, 1, 1, 1.0))
