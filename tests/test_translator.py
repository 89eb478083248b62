"""The class `nmtkit.Translator`: sentences, options, ensembles, errors of callers."""

import dataclasses
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import publish_bundle
from hypothesis import given
from hypothesis import strategies as st
from models import tiny

import nmtkit
from nmtkit.config.settings import EngineName, EnginePrecision
from nmtkit.decoding.engine import Hypothesis
from nmtkit.decoding.text_translator import TextTranslator, _best_combinations
from nmtkit.store.artifacts import publish_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.utils.errors import UserError

LONG = "The cat sat. A dog ran away. Who looked? " * 4


LINES = ["The well-known cat sat.", "", "cat | dog", LONG, "   ", "Who looked?"]


SENTENCES = ["Who looked?", "The cat sat.", "A dog ran away."]


@pytest.mark.parametrize("engine", [EngineName.TORCH, EngineName.CTRANSLATE2])
def test_invisible_line_stays_blank(engine: EngineName, bundle: Path) -> None:
    translator = nmtkit.Translator(bundle, device="cpu", engine=engine)
    blank = ["\u200b", "\u00ad\ufeff", " \u2060\t\u180e", "\u3164", "\ufe0f\u200d", "\x07"]
    visible = translator.translate(["cat", *(f"cat{characters}" for characters in blank)])
    assert all(translation.text for translation in visible)
    for translation in translator.translate(blank):
        assert (translation.text, translation.log_prob, translation.src) == ("", 0, [])


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def splitting(bundle: Path, request: pytest.FixtureRequest) -> nmtkit.Translator:
    return nmtkit.Translator(bundle, device="cpu", engine=request.param)


def test_sentences_translated_one_by_one(splitting: nmtkit.Translator) -> None:
    separate = splitting.translate(SENTENCES)
    (joined,) = splitting.translate([f"  {SENTENCES[0]}  {SENTENCES[1]} \u00a0{SENTENCES[2]} "])
    assert joined.text == " ".join(translation.text for translation in separate)
    src = []
    for translation in separate:
        src += translation.src
    assert joined.src == src
    assert (joined.n_pieces, joined.n_cut) == (3, 0)
    for value in ("score", "log_prob", "n_tokens"):
        total = sum(getattr(translation, value) for translation in separate)
        assert getattr(joined, value) == pytest.approx(total, abs=1e-3)


def test_line_unsplit_on_request(bundle: Path) -> None:
    unsplit = nmtkit.Translator(bundle, device="cpu", engine="torch", split_sentences=False)
    assert unsplit.translate([" ".join(SENTENCES[:2])])[0].n_pieces == 1
    assert [t.n_pieces for t in unsplit.translate(SENTENCES)] == [1, 1, 1]


def test_parser_never_splits(translator: nmtkit.Translator) -> None:
    trees = dataclasses.replace(translator.text.tgt, tokenizer="tags")
    text = dataclasses.replace(translator.text, tgt=trees)
    parser = TextTranslator(text, translator.engine, translator.decoding, 24, split_sentences=True)
    assert parser.translate([" ".join(SENTENCES[:2])])[0].n_pieces == 1


@pytest.mark.parametrize(
    ("lang", "separator"),
    [("de", " "), ("zh", ""), ("ja", ""), ("yue", ""), ("ko", " "), ("th", " "), ("tlh", " ")],
)
def test_sentences_joined_as_language_is_written(
    lang: str, separator: str, translator: nmtkit.Translator
) -> None:
    unspaced = dataclasses.replace(translator.text.tgt, lang=lang, tokenizer="none")
    text = dataclasses.replace(translator.text, tgt=unspaced)
    pieces = [text.encode_target(line) for line in ("cat", "", "dog")]
    assert text.decode_line("", pieces)[0] == f"cat{separator}dog"


@pytest.mark.parametrize(
    ("option", "value", "engine"),
    [
        ("engine", "torch", "torch"),
        ("engine", "ctranslate2", "ctranslate2"),
        ("engine", EngineName.CTRANSLATE2, "ctranslate2"),
        ("dtype", "int8", "ctranslate2"),
        ("dtype", EnginePrecision.INT8, "ctranslate2"),
        ("device", torch.device("cpu"), "ctranslate2"),
    ],
)
def test_options_as_strings_and_enums(option: str, value: Any, engine: str, bundle: Path) -> None:
    options = {"device": "cpu", option: value}
    assert nmtkit.Translator(bundle, **options).engine.name == engine


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("engine", "ctranslate"),
        ("engine", ""),
        ("engine", None),
        ("dtype", "int4"),
        ("dtype", torch.float32),
        ("device", "tpu"),
        ("beam_size", "4"),
        ("length_penalty", float("nan")),
    ],
)
def test_options_are_validated(option: str, value: Any, bundle: Path) -> None:
    options = {"device": "cpu", option: value}
    with pytest.raises(UserError, match=option):
        nmtkit.Translator(bundle, **options)


def test_folder_of_transformers_is_explained(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match=f"nmtkit import {tmp_path} BUNDLE"):
        nmtkit.Translator(tmp_path)


def test_text_that_is_not_unicode_raises(splitting: nmtkit.Translator) -> None:
    with pytest.raises(ValueError, match="line 2 has a lone surrogate"):
        splitting.translate(["cat!", "cat \udce9!"])
    with pytest.raises(TypeError, match="line 2 is of type bytes"):
        splitting.translate(["cat!", b"cat!"])  # type: ignore[list-item]


def test_lines_are_any_iterable_but_str(translator: nmtkit.Translator) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    translations = translator.translate(line for line in LINES)
    assert [translation.text for translation in translations] == texts
    with pytest.raises(TypeError, match="pass a list of strings"):
        translator.translate("The cat sat.")
    with pytest.raises(TypeError, match="pass a list of strings"):
        translator.n_best("The cat sat.", 2)


def test_beam_and_penalty_are_options(bundle: Path) -> None:
    changed = nmtkit.Translator(str(bundle), device="cpu", beam_size=2, length_penalty=0.0)
    assert (changed.decoding.beam_size, changed.decoding.length_penalty) == (2, 0.0)
    (translation,) = changed.translate(["The cat"])
    assert translation.score == translation.log_prob
    with pytest.raises(UserError, match="beam_size = 0"):
        nmtkit.Translator(bundle, device="cpu", beam_size=0)


def test_ensemble_averages_bundles(
    bundle: Path, tmp_path: Path, translator: nmtkit.Translator
) -> None:
    same = nmtkit.Translator(bundle, bundle, device="cpu").translate(LINES)
    single = translator.translate(LINES)
    # The mean of two equal probabilities may differ from them by rounding.
    scores = [translation.score for translation in single]
    assert [translation.score for translation in same] == pytest.approx(scores, abs=1e-3)
    other = publish_bundle(tmp_path, tiny(max_positions=12, n_layers=1), seed=4)
    both = nmtkit.Translator(bundle, other, device="cpu")
    texts = [translation.text for translation in single]
    assert [translation.text for translation in both.translate(LINES)] != texts
    assert both.max_subwords == 12


def test_ensemble_needs_one_vocabulary(bundle: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundle, tmp_path / "other"))
    vocabulary = (other / "vocabulary.tsv").read_bytes()
    shutil.copytree(other, tmp_path / "draft", ignore=shutil.ignore_patterns(MANIFEST))
    (tmp_path / "draft" / "vocabulary.tsv").write_bytes(vocabulary + b"zzz\t1\n")
    publish_directory(tmp_path / "draft", tmp_path / "changed", {"kind": "average"})
    with pytest.raises(UserError, match=r"changed and .* vocabular"):
        nmtkit.Translator(bundle, tmp_path / "changed", device="cpu")


scores = st.lists(st.floats(-9, 0), min_size=1, max_size=4)


@given(st.lists(scores, max_size=4), st.integers(1, 4))
def test_best_combinations_of_pieces(pieces: list[list[float]], n: int) -> None:
    hypotheses = []
    for i, piece_scores in enumerate(pieces):
        hypotheses.append(
            [Hypothesis([i, j], score, score) for j, score in enumerate(piece_scores)]
        )
    found = []
    for combination in _best_combinations(hypotheses, n):
        found.append(sum(hypothesis.score for hypothesis in combination))
    totals = sorted((sum(combination) for combination in product(*pieces)), reverse=True)
    assert found == pytest.approx(totals[:n])
