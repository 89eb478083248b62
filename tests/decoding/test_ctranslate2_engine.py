"""CTranslate2 computes the same log-probabilities and translations as our model and search."""

import copy
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path

import ctranslate2
import pytest
import torch
from bundles import (
    N_ROWS,
    copying_model,
    peaked_model,
    publish_bundle,
    random_model,
    random_sources,
)
from models import random_transformer, tiny
from system.command import environment

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP, VocabularyMap
from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine
from nmtkit.decoding.engine import Engine, Hypothesis, Sampling
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.interchange.ctranslate2 import write_model
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import UserError

N_TOKENS = 50
LONGEST = 7
FORBIDDEN = {PAD_ID, BOS_ID, UNK_ID, *range(N_TOKENS, N_ROWS)}
PAPERS = tiny()
FAIRSEQS = tiny(
    positions="fairseq", tie_embeddings=False, attention_bias=True, layer_norm_epsilon=0.01
)
MARIANS = tiny(activation="swish", output_bias=True, attention_bias=True)
SHALLOW = tiny(n_decoder_layers=1)
DEEP = tiny(n_decoder_layers=3)
PRE_NORM = FAIRSEQS.model_copy(update={"norm": "pre", "positions": "learned"})


def engine_of(
    model: Transformer,
    folder: Path,
    dtype: str = "float32",
    vocabulary_map: VocabularyMap | None = None,
) -> Engine:
    """An engine of CTranslate2 that runs `model`."""
    names = [str(id_) for id_ in range(N_ROWS)]
    write_model(folder, model, names, dtype, n_positions=64)
    if vocabulary_map:
        vocabulary_map.write(folder / VOCABULARY_MAP, names)
    open_model = partial(ctranslate2.Translator, str(folder), compute_type=dtype, intra_threads=1)
    return CTranslate2Engine(open_model, N_TOKENS, N_ROWS)


def translate(
    engine: Engine, sources: list[list[int]], beam_size: int, n_best: int = 1, extra: int = 20
) -> list[list[Hypothesis]]:
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.6, max_extra_tokens=extra)
    return engine.translate(sources, decoding, n_best, lambda _: None)


# The model


@pytest.mark.parametrize("config", [PAPERS, PRE_NORM, FAIRSEQS, MARIANS, SHALLOW, DEEP])
def test_log_probabilities_equal_ours(config: ModelConfig, tmp_path: Path) -> None:
    model = random_model(config)
    sources = random_sources(30, N_TOKENS, longest=20)  # longer than `max_positions`
    targets = [source[:-1] for source in random_sources(30, N_TOKENS, longest=20, seed=6)]
    ours = force_ids([model], sources, targets, align=False)
    engine = engine_of(model, tmp_path)
    theirs = engine.force(sources, targets, align=False)
    for one, other in zip(ours, theirs, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    with pytest.raises(UserError, match="does not compute alignments"):
        engine.force(sources, targets, align=True)


# The search


@pytest.fixture(scope="module")
def copying() -> Transformer:
    return copying_model(N_TOKENS, LONGEST)


def is_equally_good(ours: Hypothesis, theirs: Hypothesis) -> bool:
    """If two engines agree on the tokens or, where rounding decides, on the score."""
    return ours.tokens == theirs.tokens or ours.score == pytest.approx(theirs.score, abs=1e-3)


def check_scores(model: Transformer, source: list[int], found: list[Hypothesis]) -> None:
    """Check the scores and the order of hypotheses with our forced decoding."""
    assert found == sorted(found, key=lambda hypothesis: -hypothesis.score)
    targets = [hypothesis.tokens for hypothesis in found]
    assert len({tuple(target) for target in targets}) == len(targets)
    forced = force_ids([model], [source] * len(found), targets, align=False)
    for hypothesis, rating in zip(found, forced, strict=True):
        log_prob = sum(rating.log_probs)  # including that of the EOS
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-3)
        penalty = ((5 + len(hypothesis.tokens) + 1) / 6) ** 0.6
        assert hypothesis.score == pytest.approx(log_prob / penalty, abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_equal_our_search(
    copying: Transformer, beam_size: int, tmp_path: Path
) -> None:
    sources = random_sources(200, N_TOKENS, LONGEST, seed=1_000)
    ours = translate(TorchEngine([copying], N_TOKENS), sources, beam_size, n_best=beam_size)
    theirs = translate(engine_of(copying, tmp_path), sources, beam_size, n_best=beam_size)
    assert len({tuple(best.tokens) for best, *_ in ours}) > 100
    n_equally_good = 0
    for (our_best, *_), (their_best, *_) in zip(ours, theirs, strict=True):
        # Our search finishes all hypotheses that theirs does, and more.
        assert our_best.score >= their_best.score - 1e-3
        n_equally_good += is_equally_good(our_best, their_best)
    assert n_equally_good >= 199
    for source, found in zip(sources[:50], theirs, strict=False):
        assert len(found) == beam_size
        check_scores(copying, source, found)


def test_forbidden_tokens_are_not_produced(copying: Transformer, tmp_path: Path) -> None:
    model = copy.deepcopy(copying)
    with torch.no_grad():  # more probable than the tokens 7 and 8
        model.output_matrix[UNK_ID] = 1.1 * model.output_matrix[7]
        model.output_matrix[N_TOKENS + 3] = 1.1 * model.output_matrix[8]
    sources = random_sources(50, N_TOKENS, LONGEST, seed=1_000)
    engine = engine_of(model, tmp_path)
    for beam_size in (1, 3):
        ours = translate(TorchEngine([model], N_TOKENS), sources, beam_size)
        theirs = translate(engine, sources, beam_size)
        assert any(7 in best.tokens or 8 in best.tokens for [best] in theirs)
        assert all(FORBIDDEN.isdisjoint(best.tokens) for [best] in theirs)
        n_equally_good = 0
        for [our_best], [their_best] in zip(ours, theirs, strict=True):
            n_equally_good += is_equally_good(our_best, their_best)
        assert n_equally_good >= 48


@pytest.mark.parametrize("beam_size", [1, 3])
def test_vocabulary_map_equals_a_smaller_vocabulary(
    copying: Transformer, beam_size: int, tmp_path: Path
) -> None:
    with_bias = copying.config.model_copy(update={"output_bias": True})
    model = accelerate(Transformer(with_bias, N_ROWS).eval())
    model.load_state_dict({**copying.state_dict(), "output_bias": torch.zeros(N_ROWS)})
    frequent = list(range(30, 45))
    candidates = {id_: [id_, id_ + 1] for id_ in range(4, 30, 3)}
    engine = engine_of(model, tmp_path, vocabulary_map=VocabularyMap(frequent, candidates))
    n_equally_good = n_different = 0
    for source in random_sources(40, N_TOKENS, LONGEST):
        allowed = {BOS_ID, EOS_ID, UNK_ID, *frequent}
        for id_ in source:
            allowed.update(candidates.get(id_, ()))
        smaller = copy.deepcopy(model)
        with torch.no_grad():
            for id_ in set(range(N_ROWS)) - allowed:
                smaller.output_bias[id_] = -1e4  # type: ignore[index]
        # A batch of its own: the sentences of a batch share their candidates.
        [[theirs]] = translate(engine, [source], beam_size)
        [[ours]] = translate(TorchEngine([smaller], N_TOKENS), [source], beam_size)
        [[whole]] = translate(TorchEngine([model], N_TOKENS), [source], beam_size)
        assert allowed.issuperset(theirs.tokens)
        check_scores(smaller, source, [theirs])
        n_equally_good += is_equally_good(ours, theirs)
        n_different += not is_equally_good(whole, theirs)
    assert n_equally_good >= 35
    assert n_different >= 20


def test_sampling_ignores_vocabulary_map(tmp_path: Path) -> None:
    engine = engine_of(
        peaked_model(PAPERS, N_ROWS, seed=3), tmp_path, vocabulary_map=VocabularyMap([5], {})
    )
    decoding = DecodingConfig(beam_size=2, length_penalty=0.6, max_extra_tokens=20)
    sources = random_sources(20, N_TOKENS, LONGEST)
    drawn = engine.sample(sources, decoding, Sampling(seed=1), lambda _: None)
    assert len({id_ for hypothesis in drawn for id_ in hypothesis.tokens}) > 5


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translation_has_its_maximum_length(
    copying: Transformer, beam_size: int, tmp_path: Path
) -> None:
    model = copy.deepcopy(copying)
    with torch.no_grad():
        model.output_matrix[EOS_ID] = 0
    sources = [[5, 6, 7, EOS_ID], [5, EOS_ID]]
    engine = engine_of(model, tmp_path)
    both = translate(engine, sources, beam_size, n_best=beam_size, extra=4)
    assert [len(best.tokens) for best, *_ in both] == [3 + 4, 1 + 4]
    bounded = DecodingConfig(
        beam_size=beam_size, length_penalty=0.6, max_extra_tokens=4, max_length=6
    )
    lengths = []
    for best, *_ in engine.translate(sources, bounded, 1, lambda _: None):
        lengths.append(len(best.tokens))
    assert lengths == [6, 1 + 4]
    for source, found in zip(sources, both, strict=True):
        (single,) = translate(engine, [source], beam_size, beam_size, extra=4)
        assert is_equally_good(found[0], single[0])
        assert len(single) == beam_size  # cut from longer ones, some would be equal
        check_scores(model, source, found)


@pytest.mark.parametrize("beam_size", [7, 8, 9, 30, 200])
def test_beam_larger_than_vocabulary(beam_size: int, tmp_path: Path) -> None:
    """Nothing is pruned, so that both engines find the best of all translations."""
    model = random_transformer(tiny(), 8, seed=3).eval()
    write_model(tmp_path, model, [str(id_) for id_ in range(8)], "float32", n_positions=64)
    open_model = partial(ctranslate2.Translator, str(tmp_path), intra_threads=1)
    engines = [TorchEngine([accelerate(model)], 8), CTranslate2Engine(open_model, 8, 8)]
    source = [5, 6, EOS_ID]
    targets = [list(ids) for n in range(4) for ids in product(range(4, 8), repeat=n)]
    ratings = force_ids([model], [source] * len(targets), targets, align=False)
    scores = [sum(rating.log_probs) for rating in ratings]
    for engine in engines:
        decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_tokens=1)
        ((best,),) = engine.translate([source], decoding, 1, lambda _: None)
        assert best.log_prob == pytest.approx(max(scores), abs=1e-4)
        assert best.tokens == targets[scores.index(max(scores))]


def test_nan_weights_are_an_error(tmp_path: Path) -> None:
    model = Transformer(PAPERS, N_ROWS)
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    with pytest.raises(UserError, match="NaN instead of probabilities"):
        translate(engine_of(model, tmp_path), [[5, EOS_ID]], beam_size=2)


# After a fork

FORKED = """
import os, shutil, signal, sys
import nmtkit

bundle, engine, cache = sys.argv[1:]
line = "The well-known cat sat."
translator = nmtkit.Translator(bundle, engine=engine, device="cpu")
unused = nmtkit.Translator(bundle, engine=engine, device="cpu")
expected = translator.translate([line] * 40)[0].text


def fork(work):
    if (pid := os.fork()) == 0:
        signal.alarm(120)  # if it hangs
        work()
        sys.exit()  # with destructors
    assert os.waitpid(pid, 0)[1] == 0


def check():
    assert translator.translate([line] * 40)[0].text == expected
    assert unused.translate([line])[0].text == expected


def drop():
    global translator
    translator = None


fork(lambda: None)
fork(drop)
fork(check)
fork(lambda: (check(), fork(check)))
check()
if engine == "ctranslate2":
    shutil.rmtree(cache)
    try:
        fork(check)
    except AssertionError:
        print("refused")
"""


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_forked_child_translates(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "nmtkit" / "ctranslate2"
    bundle = publish_bundle(tmp_path / "b", PAPERS)
    command = [sys.executable, "-c", FORKED, str(bundle), engine, str(cache)]
    ended = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    if engine == "ctranslate2":
        assert ended.stdout == b"refused\n"
        assert b"create the Translator in the child process" in ended.stderr
