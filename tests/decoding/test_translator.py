"""Translation of ids: order, batches, lengths and an uncached search as reference."""

import random
import threading
import time
from collections.abc import Iterator
from typing import ClassVar

import pytest
import torch
from models import tiny
from torch import Tensor

from nmtkit.decoding import translator
from nmtkit.decoding.beam_search import beam_search
from nmtkit.decoding.engine import Hypothesis
from nmtkit.decoding.translator import translate_ids
from nmtkit.errors import UserError
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.fast.step import IncrementalDecoder
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID

N_TOKENS, N_ROWS = 23, 32
EXTRA = 4


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Make batches that do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def _three_threads(monkeypatch: pytest.MonkeyPatch, _one_thread: None) -> None:
    """Let as many threads as a machine with three cores has work on small batches."""
    torch.set_num_threads(3)
    monkeypatch.setattr(translator, "MIN_SENTENCES", 2)


def peaked_model(seed: int = 11) -> Transformer:
    """A random model whose choices are clear: no rounding decides between two of them."""
    config = tiny(d_v=5, dropout=0.1, max_positions=8, tie_embeddings=False, vocabulary_multiple=8)
    torch.manual_seed(seed)
    model = Transformer(config, N_ROWS)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    model.output_matrix.data.mul_(3)
    return accelerate(model)


def steer(model: Transformer, towards: list[int], away_from: list[int]) -> None:
    """Make some ids very probable and others very improbable, whatever was read."""
    last = model.decoder[-1]
    direction = torch.zeros(model.config.d_model)
    direction[0] = 20.0
    norm = last.get_submodule("residuals.2.norm")
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


def search(
    model: Transformer,
    sources: list[list[int]],
    beam_size: int = 3,
    extra: int = EXTRA,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    return translate_ids(
        model,
        sources,
        decoding(beam_size, extra),
        n_tokens=N_TOKENS,
        n_best=n_best,
        progress=lambda _: None,
    )


def translate(
    model: Transformer, sources: list[list[int]], beam_size: int = 3, extra: int = EXTRA
) -> list[Hypothesis]:
    return [hypotheses[0] for hypotheses in search(model, sources, beam_size, extra)]


class Uncached:
    """Runs the whole decoder on every prefix, one after the other, with the sentence's source."""

    def __init__(self, model: Transformer, source: list[int]) -> None:
        self.model = model
        self.layout = PackedLayout.of_lengths([len(source)])
        self.memory = model.encode(torch.tensor(source), self.layout)
        self.prefixes: list[list[int]] = [[]]

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        newest = tokens[0].tolist()
        pairs = zip(self.prefixes, newest, strict=True)
        self.prefixes = [[*prefix, token] for prefix, token in pairs]
        return iter([torch.stack([self.next_token(prefix) for prefix in self.prefixes])[None]])

    def next_token(self, prefix: list[int]) -> Tensor:
        layout = PackedLayout.of_lengths([len(prefix)])
        hidden = self.model.decode(torch.tensor(prefix), layout, self.memory, self.layout)
        log_probs = (hidden[-1] @ self.model.output_matrix.t()).log_softmax(-1)
        log_probs[[PAD_ID, BOS_ID, UNK_ID, *range(N_TOKENS, N_ROWS)]] = -torch.inf
        return log_probs

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        assert sentences.tolist() == [0]
        self.prefixes = [self.prefixes[beam] for beam in beams[0].tolist()]


def assert_same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in ours] == [hyp.tokens for hyp in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)


@pytest.mark.parametrize(("seed", "beam_size", "n_best"), [(11, 1, 1), (14, 3, 3), (13, 4, 2)])
def test_translations_are_those_of_a_search_without_caches(
    seed: int, beam_size: int, n_best: int
) -> None:
    model, sources = peaked_model(seed).eval(), random_sources(9)
    expected = []
    with torch.inference_mode():
        for source in sources:
            (of_source,) = beam_search(
                Uncached(model, source),
                torch.tensor([len(source) - 1]),
                decoding(beam_size),
                n_best,
            )
            expected.append(of_source)
    assert len({tuple(hypotheses[0].tokens) for hypotheses in expected}) > 3
    found = search(model, sources, beam_size, n_best=n_best)
    assert [len(hypotheses) for hypotheses in found] == [n_best] * len(sources)
    for ours, theirs in zip(found, expected, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("batch_tokens", [1, 3 * 30, 10**6])
def test_translation_does_not_depend_on_what_else_is_in_the_batch(
    monkeypatch: pytest.MonkeyPatch, batch_tokens: int
) -> None:
    model, sources = peaked_model(), random_sources(12)
    alone = [translate(model, [source])[0] for source in sources]
    assert len({tuple(hypothesis.tokens) for hypothesis in alone}) > 3
    monkeypatch.setitem(translator.BATCH_TOKENS, "cpu", batch_tokens)
    assert_same(translate(model, sources), alone)
    assert_same(translate(model, sources[5:7][::-1]), alone[5:7][::-1])


def test_progress_counts_every_sentence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(translator.BATCH_TOKENS, "cpu", 30)
    done: list[int] = []
    translate_ids(
        peaked_model(),
        random_sources(17),
        decoding(2),
        n_tokens=N_TOKENS,
        n_best=1,
        progress=done.append,
    )
    assert sum(done) == 17
    assert len(done) > 1


def batches_of(model: Transformer, sources: list[list[int]]) -> list[list[int]]:
    """The lengths of the sentences in each batch that is translated."""
    batches: list[list[int]] = []
    with pytest.MonkeyPatch.context() as patch:

        def encode(src: Tensor, layout: PackedLayout) -> Tensor:
            batches.append(layout.lengths.tolist())
            return Transformer.encode(model, src, layout)

        patch.setattr(model, "encode", encode)
        translate(model, sources)
    return batches


def test_batch_never_exceeds_its_tokens_but_for_a_single_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(translator.BATCH_TOKENS, "cpu", 20)
    sources = [[*[5] * (length - 1), EOS_ID] for length in (9, 1, 4, 40, 4, 2, 9, 7)]
    assert batches_of(peaked_model(), sources) == [[40], [9, 9], [7, 4], [4, 2, 1]]
    monkeypatch.setitem(translator.BATCH_ROWS, "cpu", 8)  # of 3 beams
    assert batches_of(peaked_model(), sources) == [[40], [9, 9], [7, 4], [4, 2], [1]]


@pytest.mark.usefixtures("_three_threads")
def test_threads_get_shares_of_what_is_left_but_no_batch_of_few_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [[5, 6, EOS_ID]] * 60
    sizes = [len(batch) for batch in batches_of(peaked_model(), sources)]
    assert sorted(sizes) == [2, 5, 5, 6, 9, 13, 20]  # a quarter of the first share is 5
    monkeypatch.setattr(translator, "MIN_ROWS", 9)  # 3 beams
    sizes = [len(batch) for batch in batches_of(peaked_model(), sources)]
    assert sorted(sizes) == [2, 3, 3, 4, 6, 9, 13, 20]


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't all.."),
    MemoryError(),
]


class Cramped(IncrementalDecoder):
    """A decoder on a device with room for a few sentences, which shows in the second step."""

    room = 3
    error: Exception
    refused: ClassVar[list[int]] = []  # sentences of each batch that did not fit

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        if len(tokens) > self.room and self._length > 0:
            self.refused.append(len(tokens))
            raise self.error
        return super().step(tokens)


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_batches_are_halved_until_they_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model, sources = peaked_model(), random_sources(25)
    expected = translate(model, sources)
    monkeypatch.setattr(translator, "IncrementalDecoder", Cramped)
    monkeypatch.setattr(Cramped, "error", error, raising=False)
    monkeypatch.setattr(Cramped, "refused", [])
    assert_same(translate(model, sources), expected)
    assert Cramped.refused[:3] == [25, 12, 6]
    assert len(Cramped.refused) < 8  # what follows is halved too


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_single_sentence_that_does_not_fit_into_memory_is_a_users_error(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(translator, "IncrementalDecoder", Cramped)
    monkeypatch.setattr(Cramped, "error", error, raising=False)
    monkeypatch.setattr(Cramped, "room", 0)
    with pytest.raises(UserError, match=r"cpu has too little memory .* beam_size = 3; .* lower"):
        translate(peaked_model(), random_sources(5))


def test_any_other_error_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "IncrementalDecoder", Cramped)
    monkeypatch.setattr(Cramped, "error", RuntimeError("shapes do not match"), raising=False)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translate(peaked_model(), random_sources(5))


@pytest.mark.parametrize("extra", [0, 1, 6])
def test_longest_output_is_the_source_without_its_end_symbol_and_the_extra_tokens(
    extra: int,
) -> None:
    model, sources = peaked_model(), random_sources(12)
    steer(model, towards=[], away_from=[EOS_ID])
    lengths = [len(hyp.tokens) for hyp in translate(model, sources, extra=extra)]
    assert lengths == [len(source) - 1 + extra for source in sources]


def test_output_ends_where_the_model_ends_it() -> None:
    model = peaked_model()
    steer(model, towards=[EOS_ID], away_from=[])
    assert [hyp.tokens for hyp in translate(model, random_sources(5))] == [[]] * 5


def test_only_ids_of_the_vocabulary_are_produced_however_probable_others_are() -> None:
    model = peaked_model()
    steer(model, towards=[PAD_ID, BOS_ID, UNK_ID, *range(N_TOKENS, N_ROWS)], away_from=[EOS_ID])
    produced = {token for hyp in translate(model, random_sources(8)) for token in hyp.tokens}
    assert produced <= set(range(len(SPECIALS), N_TOKENS))
    assert produced


def test_weights_that_are_no_numbers_are_a_users_error() -> None:
    model = peaked_model()
    model.output_matrix.data.fill_(torch.nan)
    with pytest.raises(UserError, match=r"NaN instead of probabilities.* diverged"):
        translate(model, random_sources(3))


@pytest.mark.usefixtures("_three_threads")
def test_threads_share_the_work_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(translator.BATCH_TOKENS, "cpu", 25)
    model, sources = peaked_model(), random_sources(40)
    alone = [translate(model, [source])[0] for source in sources]
    together = threading.Barrier(3, timeout=60)
    threads: set[int] = set()

    class Meeting(IncrementalDecoder):
        """A decoder that waits in its first step until three of its kind are at work."""

        def step(self, tokens: Tensor) -> Iterator[Tensor]:
            if threading.get_ident() not in threads:
                threads.add(threading.get_ident())
                together.wait()
            assert torch.get_num_threads() == 1
            return super().step(tokens)

    monkeypatch.setattr(translator, "IncrementalDecoder", Meeting)
    assert_same(translate(model, sources), alone)
    assert len(threads) == 3
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_a_single_batch_is_computed_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    n_threads: list[int] = []

    class Counting(IncrementalDecoder):
        """A decoder that notes how many threads torch has."""

        def step(self, tokens: Tensor) -> Iterator[Tensor]:
            n_threads.append(torch.get_num_threads())
            return super().step(tokens)

    monkeypatch.setattr(translator, "IncrementalDecoder", Counting)
    translate(peaked_model(), random_sources(1))
    assert set(n_threads) == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
@pytest.mark.parametrize("first_ends_first", [True, False])
def test_searches_at_the_same_time_leave_torch_its_cores(
    first_ends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_runs, may_end = threading.Event(), (threading.Event(), threading.Event())
    model = peaked_model()
    steps: list[int] = []

    class Waiting(IncrementalDecoder):
        """A decoder that waits in its first step; the second one begins when the first waits."""

        waits = True

        def step(self, tokens: Tensor) -> Iterator[Tensor]:
            if self.waits:
                self.waits = False
                number = len(steps)
                steps.append(number)
                if number == 1:
                    second_runs.set()
                assert may_end[number].wait(60)
            return super().step(tokens)

    monkeypatch.setattr(translator, "IncrementalDecoder", Waiting)
    cores: list[int] = []

    def search() -> None:
        translate(model, random_sources(1))
        cores.append(torch.get_num_threads())

    first, second = (threading.Thread(target=search) for _ in range(2))
    first.start()
    while not steps:
        time.sleep(0.001)
    assert first.is_alive()
    second.start()
    assert second_runs.wait(60)
    order = [(first, may_end[0]), (second, may_end[1])]
    for thread, event in order if first_ends_first else order[::-1]:
        event.set()
        thread.join(60)
    assert cores == [3, 3]
    later = threading.Thread(target=lambda: cores.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert cores == [3, 3, 3]
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_error_of_a_thread_ends_the_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(translator.BATCH_TOKENS, "cpu", 30)
    model, sources = peaked_model(), random_sources(40)
    steer(model, towards=[], away_from=[EOS_ID])
    steps: list[int] = []  # the thread of each

    class Failing(IncrementalDecoder):
        """A decoder of which one fails soon, while the others have 10,000 steps to go."""

        def step(self, tokens: Tensor) -> Iterator[Tensor]:
            steps.append(threading.get_ident())
            if steps.count(steps[0]) == 50 and steps[0] == threading.get_ident():
                raise RuntimeError("broken")
            return super().step(tokens)

    monkeypatch.setattr(translator, "IncrementalDecoder", Failing)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="broken"):
        translate(model, sources, extra=1_000)
    assert threading.active_count() == before
    assert torch.get_num_threads() == 3
    assert len(steps) < 5_000


@pytest.mark.usefixtures("_three_threads")
def test_threads_halve_their_batches_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sources = peaked_model(), random_sources(45)
    expected = translate(model, sources)
    monkeypatch.setattr(translator, "IncrementalDecoder", Cramped)
    monkeypatch.setattr(Cramped, "error", OUT_OF_MEMORY[1], raising=False)
    monkeypatch.setattr(Cramped, "refused", [])
    assert_same(translate(model, sources), expected)
    longest_first = sorted(map(len, sources), reverse=True)
    assert sum(longest_first[:9]) <= sum(longest_first) / 3 < sum(longest_first[:10])
    assert 9 in Cramped.refused[:3]  # a third of the tokens


def test_no_sources_give_no_translations() -> None:
    assert translate(peaked_model(), []) == []
