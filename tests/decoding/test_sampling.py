"""Sampling: frequencies equal probabilities, and the torch engine ignores batches."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from bundles import publish_bundle
from models import next_log_probs, tiny
from torch import Tensor

from nmtkit import Translator
from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.decoding import torch_engine
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine
from nmtkit.decoding.engine import Engine, Hypothesis, Sampling
from nmtkit.decoding.sampling import sample
from nmtkit.decoding.torch_engine import TorchEngine, load_model
from nmtkit.utils.errors import UserError

DECODING = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
CPU = torch.device("cpu")
MAX_Z = 4.5  # standard deviations; one in 100,000 tokens is further away by chance


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with a decoder of other depth than its encoder."""
    config = tiny(max_positions=24, n_decoder_layers=1)
    return open_bundle(publish_bundle(tmp_path_factory.mktemp("sampling"), config, seed=8))


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def engine(
    request: pytest.FixtureRequest, bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> Engine:
    if request.param == "torch":
        return TorchEngine.load([bundle], CPU)
    return CTranslate2Engine.load(bundle, "cpu", "float32", tmp_path_factory.mktemp("cache"))


def random_sources(n: int, n_tokens: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    sources = []
    for length in torch.randint(1, 8, (n,), generator=generator).tolist():
        ids = torch.randint(4, n_tokens, (length,), generator=generator).tolist()
        sources.append([*ids, EOS_ID])
    return sources


def drawn_from(log_probs: Tensor, sampling: Sampling, n_tokens: int) -> Tensor:
    """The probabilities (B, V) that tokens are drawn with, by the definitions."""
    logits = log_probs / sampling.temperature
    logits[:, [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, logits.shape[1])]] = -torch.inf
    for row in logits if sampling.top_k else []:
        kept = row.sort(descending=True).indices[: sampling.top_k]
        row[[i for i in range(len(row)) if i not in kept.tolist()]] = -torch.inf
    return logits.softmax(-1)


@pytest.mark.parametrize(
    ("temperature", "top_k"), [(1.0, None), (3.0, None), (3.0, 3), (1.7, 5), (2.0, 10_000)]
)
@torch.inference_mode()
def test_frequencies_equal_probabilities(
    engine: Engine, bundle: Bundle, temperature: float, top_k: int | None
) -> None:
    n_tokens = bundle.text.subword.n_tokens
    model = load_model(bundle, CPU).eval()
    sources = random_sources(12, n_tokens)
    n_seeds = 120

    @cache
    def probabilities(number: int, *prefix: int) -> list[float]:
        """The probabilities of the next tokens, for the source of a number."""
        log_probs = next_log_probs(model, sources[number], [list(prefix)])
        probs: list[float] = drawn_from(log_probs, sampling, n_tokens)[0].tolist()
        return probs

    # The tokens that begin a translation, and those that follow its first token.
    expected: defaultdict[tuple[int, int], float] = defaultdict(float)
    variance: defaultdict[tuple[int, int], float] = defaultdict(float)
    observed: Counter[tuple[int, int]] = Counter()
    for seed in range(n_seeds):
        sampling = Sampling(seed, temperature, top_k)
        drawn = engine.sample(sources, DECODING, sampling, lambda _: None)
        for number, hypothesis in enumerate(drawn):
            tokens = [*hypothesis.tokens, EOS_ID]
            for place in range(min(2, len(tokens))):
                probs = probabilities(number, BOS_ID, *tokens[:place])
                observed[place, tokens[place]] += 1
                for token, prob in enumerate(probs):
                    expected[place, token] += prob
                    variance[place, token] += prob * (1 - prob)
    assert sum(observed.values()) > 1.5 * n_seeds * len(sources)
    for key, n_expected in expected.items():
        if n_expected == 0:
            assert observed[key] == 0
        else:
            z = (observed[key] - n_expected) / max(1.0, variance[key]) ** 0.5
            assert abs(z) < MAX_Z, (key, observed[key], n_expected)


def test_scores_are_the_models(engine: Engine, bundle: Bundle) -> None:
    sources = random_sources(9, bundle.text.subword.n_tokens)
    sampling = Sampling(3, temperature=2.0, top_k=9)
    drawn = engine.sample(sources, DECODING, sampling, lambda _: None)
    forced = engine.force(sources, [hypothesis.tokens for hypothesis in drawn], align=False)
    for source, hypothesis, ratings in zip(sources, drawn, forced, strict=True):
        assert len(hypothesis.tokens) <= DECODING.max_target_length(len(source) - 1)
        log_prob = sum(ratings.log_probs)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
        expected = Hypothesis.from_tokens(hypothesis.tokens, log_prob, DECODING)
        assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 30, 10**6])
def test_torch_draws_ignore_batch(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, batch_tokens: int
) -> None:
    engine = TorchEngine.load([bundle], CPU)
    sources = random_sources(25, bundle.text.subword.n_tokens)
    sampling = Sampling(seed=7, temperature=3.0)
    separate = []
    for source in sources:
        separate += engine.sample([source], DECODING, sampling, lambda _: None)
    monkeypatch.setitem(torch_engine.BATCH_TOKENS, "cpu", batch_tokens)
    done: list[int] = []
    together = engine.sample(sources[::-1], DECODING, sampling, done.append)[::-1]
    assert [drawn.tokens for drawn in together] == [drawn.tokens for drawn in separate]
    assert sum(done) == len(sources)
    others = engine.sample(sources, DECODING, Sampling(seed=8, temperature=3.0), lambda _: None)
    n_equal = sum(a.tokens == b.tokens for a, b in zip(others, separate, strict=True))
    assert n_equal < len(sources) // 2
    assert engine.sample([], DECODING, sampling, lambda _: None) == []


class NanAfterFirst:
    """Draws token 5, then returns NaN for the second sentence and the EOS for the others."""

    n_steps = 0

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        log_probs = torch.full((len(tokens), 1, 9), -torch.inf)
        log_probs[:, :, EOS_ID if self.n_steps else 5] = 0.0
        if self.n_steps:
            log_probs[1] = torch.nan
        self.n_steps += 1
        yield log_probs[:2]
        yield log_probs[2:]

    def reorder(self, *_: Tensor) -> None:
        raise AssertionError


def test_nan_gives_no_translation() -> None:
    drawn = sample(NanAfterFirst(), [[4, 2], [4, 2], [6, 2]], DECODING, Sampling(), CPU)
    assert drawn[1] is None
    assert [drawn[0] and drawn[0].tokens, drawn[2] and drawn[2].tokens] == [[5], [5]]


def test_translator_samples_lines(bundle: Bundle) -> None:
    path = bundle.artifact.path
    lines = ["A dog looked. Then it ran away.", "", "cat!", "cat!"]
    texts: dict[tuple[int, str], list[str]] = {}
    for seed in (1, 2, 1):
        translator = Translator(path, device="cpu", engine="torch", sampling=Sampling(seed))
        translations = translator.translate(lines)
        assert translations[0].n_pieces == 2
        assert translations[1].text == ""
        assert translations[2].text == translations[3].text
        text = [translation.text for translation in translations]
        assert texts.setdefault((seed, translator.fingerprint), text) == text
    assert len(texts) == len({tuple(text) for text in texts.values()}) == 2
    with pytest.raises(ValueError, match="one translation"):
        translator.n_best(lines, 2)


@pytest.mark.parametrize(
    "values", [{"seed": -1}, {"temperature": 0.0}, {"temperature": float("nan")}, {"top_k": 0}]
)
def test_invalid_values_are_refused(bundle: Bundle, values: dict[str, float]) -> None:
    with pytest.raises(UserError):
        Translator(bundle.artifact.path, sampling=Sampling(**values))  # type: ignore[arg-type]
