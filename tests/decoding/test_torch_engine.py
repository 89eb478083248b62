"""The torch engine: order, batches, threads, lengths and ensembles, with an uncached reference."""

import random
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from models import Uncached, random_transformer, tiny
from torch import Tensor

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.decoding import torch_engine
from nmtkit.decoding.beam_search import beam_search
from nmtkit.decoding.engine import Hypothesis
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import UserError

N_TOKENS = 23
N_ROWS = 32
EXTRA = 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Use one thread, so that batches do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _three_threads(monkeypatch: pytest.MonkeyPatch, _one_thread: None) -> None:
    """Use three threads and small batches."""
    torch.set_num_threads(3)
    monkeypatch.setattr(torch_engine, "MIN_SENTENCES", 2)


def peaked_model(seed: int = 11, n_rows: int = N_ROWS, n_layers: int = 2) -> Transformer:
    """A random model that is certain of its choices, so that rounding decides nothing."""
    config = tiny(d_v=5, dropout=0.1, max_positions=8, tie_embeddings=False, n_layers=n_layers)
    return accelerate(random_transformer(config, n_rows, seed, peaked=3.0))


def steer(model: Transformer, towards: list[int], away_from: list[int]) -> None:
    """Make some ids very probable and others very improbable, for every source."""
    direction = torch.zeros(model.config.d_model)
    direction[0] = 20.0
    norm = model.decoder[-1].get_submodule("residuals.2.norm")
    norm.get_parameter("bias").data.copy_(direction)
    model.output_matrix.data[:, 0] = 0
    model.output_matrix.data[towards] = direction / 10
    model.output_matrix.data[away_from] = -direction / 10


def random_sources(n: int, seed: int = 5) -> list[list[int]]:
    rng = random.Random(seed)
    return [
        [*rng.choices(range(len(SPECIALS), N_TOKENS), k=rng.randint(0, 11)), EOS_ID]
        for _ in range(n)
    ]


def decoding(beam_size: int, extra: int = EXTRA) -> DecodingConfig:
    return DecodingConfig(beam_size=beam_size, length_penalty=0.6, max_extra_tokens=extra)


def translate(
    model: Transformer,
    sources: list[list[int]],
    beam_size: int = 3,
    extra: int = EXTRA,
    advances: list[int] | None = None,
) -> list[Hypothesis]:
    advances = [] if advances is None else advances
    engine = TorchEngine([model], N_TOKENS)
    found = engine.translate(sources, decoding(beam_size, extra), 1, advances.append)
    return [best for (best,) in found]


def uncached(
    models: list[Transformer], source: list[int], beam_size: int, n_best: int = 1
) -> list[Hypothesis]:
    """The result of a search without caches."""
    model = Uncached(models, source, N_TOKENS)
    with torch.inference_mode():
        (found,) = beam_search(model, torch.tensor([len(source) - 1]), decoding(beam_size), n_best)
    return found


def assert_same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in ours] == [hyp.tokens for hyp in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.score == pytest.approx(other.score, abs=1e-4)
        assert mine.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.parametrize(("seed", "beam_size", "n_best"), [(11, 1, 1), (14, 3, 3), (13, 4, 2)])
def test_translations_equal_uncached_search(seed: int, beam_size: int, n_best: int) -> None:
    model = peaked_model(seed).eval()
    sources = random_sources(9)
    expected = [uncached([model], source, beam_size, n_best) for source in sources]
    assert len({tuple(hypotheses[0].tokens) for hypotheses in expected}) > 3
    engine = TorchEngine([model], N_TOKENS)
    found = engine.translate(sources, decoding(beam_size), n_best, lambda _: None)
    assert [len(hypotheses) for hypotheses in found] == [n_best] * len(sources)
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)


def test_ensemble_uses_mean_probability() -> None:
    models = [
        peaked_model(seed, n_rows, n_layers).eval()
        for seed, n_rows, n_layers in ((1, 24, 1), (2, 32, 2), (3, 24, 1))
    ]
    engine = TorchEngine(models, N_TOKENS)
    sources = random_sources(6)
    found = engine.translate(sources, decoding(3), 1, lambda _: None)
    for source, ours in zip(sources, found, strict=True):
        assert_same(ours, uncached(models, source, beam_size=3))
        (forced,) = engine.force([source], [ours[0].tokens], align=True)
        assert sum(forced.log_probs) == pytest.approx(ours[0].log_prob, abs=1e-4)
    assert any(ours[0] != translate(models[0], [sources[i]])[0] for i, ours in enumerate(found))


@pytest.mark.parametrize("batch_tokens", [1, 3 * 30, 10**6])
def test_translation_ignores_batch(monkeypatch: pytest.MonkeyPatch, batch_tokens: int) -> None:
    model = peaked_model()
    sources = random_sources(12)
    separate = [translate(model, [source])[0] for source in sources]
    assert len({tuple(hypothesis.tokens) for hypothesis in separate}) > 3
    monkeypatch.setitem(torch_engine.BATCH_TOKENS, "cpu", batch_tokens)
    advances: list[int] = []
    assert_same(translate(model, sources, advances=advances), separate)
    assert sum(advances) == 12
    assert_same(translate(model, sources[5:7][::-1]), separate[5:7][::-1])
    assert translate(model, []) == []


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't all.."),
    MemoryError(),
]


def before_step(model: Transformer, call: Callable[[Tensor, int], None]) -> None:
    """Call a function before every step, with the newest tokens (B, W) and the number of steps."""
    model.tgt_embedding.register_forward_pre_hook(
        lambda _embedding, arguments: call(arguments[0], arguments[2])
    )


def limit_memory(model: Transformer, error: Exception, max_sentences: int = 3) -> list[int]:
    """Raise `error` in the second step of larger batches; return the list of their sizes."""
    refused: list[int] = []

    def check(tokens: Tensor, n_steps: int) -> None:
        if len(tokens) > max_sentences and n_steps > 1:
            refused.append(len(tokens))
            raise error

    before_step(model, check)
    return refused


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_batches_are_halved_to_fit(error: Exception) -> None:
    model = peaked_model()
    sources = random_sources(25)
    expected = translate(model, sources)
    refused = limit_memory(model, error)
    assert_same(translate(model, sources), expected)
    assert refused[:3] == [25, 12, 6]
    assert len(refused) < 8  # later batches are halved too


def test_too_little_memory_is_user_error() -> None:
    model = peaked_model()
    limit_memory(model, MemoryError(), max_sentences=0)
    with pytest.raises(UserError, match=r"too little memory .*beam_size = 3"):
        translate(model, random_sources(5))


def test_other_error_is_raised() -> None:
    model = peaked_model()
    refused = limit_memory(model, RuntimeError("shapes do not match"), max_sentences=0)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translate(model, random_sources(5))
    assert refused == [5]


def test_maximum_output_length() -> None:
    model = peaked_model()
    sources = random_sources(12)
    steer(model, towards=[], away_from=[EOS_ID])
    for extra in (0, 6):
        lengths = [len(hyp.tokens) for hyp in translate(model, sources, extra=extra)]
        assert lengths == [len(source) - 1 + extra for source in sources]


def test_output_has_only_vocabulary_ids() -> None:
    model = peaked_model()
    steer(model, towards=[PAD_ID, BOS_ID, UNK_ID, *range(N_TOKENS, N_ROWS)], away_from=[EOS_ID])
    produced = {token for hyp in translate(model, random_sources(8)) for token in hyp.tokens}
    assert produced <= set(range(len(SPECIALS), N_TOKENS))
    assert produced


def test_nan_weights_are_user_error() -> None:
    model = peaked_model()
    model.output_matrix.data.fill_(torch.nan)
    engine = TorchEngine([model], N_TOKENS)
    sources = random_sources(3)
    with pytest.raises(UserError, match=r"NaN instead of probabilities.* diverged"):
        engine.translate(sources, decoding(3), 1, lambda _: None)
    with pytest.raises(UserError, match=r"NaN instead of probabilities.* diverged"):
        engine.force(sources, [[5]] * 3, align=False)


# Threads


@pytest.mark.usefixtures("_three_threads")
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_engine.BATCH_TOKENS, "cpu", 25)
    model = peaked_model()
    sources = random_sources(40)
    separate = [translate(model, [source])[0] for source in sources]
    together = threading.Barrier(3, timeout=60)
    threads: set[int] = set()

    def wait_for_others(_tokens: Tensor, _n_steps: int) -> None:
        """Wait in the first step of a thread until three threads are running."""
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            together.wait()
        assert torch.get_num_threads() == 1

    before_step(model, wait_for_others)
    assert_same(translate(model, sources), separate)
    assert len(threads) == 3
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_error_of_thread_stops_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_engine.BATCH_TOKENS, "cpu", 30)
    model = peaked_model()
    sources = random_sources(40)
    steer(model, towards=[], away_from=[EOS_ID])
    steps: list[int] = []  # the thread of every step

    def fail(_tokens: Tensor, _n_steps: int) -> None:
        """Fail soon in one thread, while the others have 1,000 steps left."""
        steps.append(threading.get_ident())
        if steps.count(steps[0]) == 50 and steps[0] == threading.get_ident():
            raise RuntimeError("broken")

    before_step(model, fail)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="broken"):
        translate(model, sources, extra=1_000)
    assert threading.active_count() == before
    assert len(steps) < 1_000  # otherwise, the two other threads end after 1,000 each
