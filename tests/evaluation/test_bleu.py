"""BLEU, compared with the scores of the original tools."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from system.command import read_lines

from nmtkit.evaluation.bleu import compound_split, count_scores, multi_bleu
from nmtkit.evaluation.sacre import sacre_bleu
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

EN = Language.of("en")
DE = Language.of("de")


def test_multi_bleu_with_two_references() -> None:
    bleu = multi_bleu(
        ["the cat sat on the red mat .", "a dog came", "", "it rains today in the old town"],
        ["the cat sat on a red mat .", "a dog came home today", "", "today it rains in the town"],
        ["a cat sat on the mat , red .", "a dog", "", "it rains today in this old town here"],
    )
    assert round(bleu["score"], 2) == 63.16
    precisions = [round(precision, 1) for precision in bleu["precisions"]]
    assert precisions == [94.4, 86.7, 58.3, 33.3]
    assert (bleu["brevity_penalty"], bleu["hyp_len"], bleu["ref_len"]) == (1.0, 18, 16)


def test_other_spaces_do_not_split_tokens() -> None:
    for code in range(0x3001):
        line = f"a{chr(code)}b"
        assert multi_bleu([line], [line])["hyp_len"] == len(line.encode().split())


@pytest.mark.parametrize(
    ("tokens", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a-ä-c", "a ##AT##-##AT## ä ##AT##-##AT## c"),
        ("a - b -c d- --", "a - b -c d- --"),
        ("a---b", "a ##AT##-##AT## --b"),
    ],
)
def test_compound_split_equals_perl(tokens: str, split: str) -> None:
    assert compound_split(tokens) == split


HYPS = ["The cat sat on the mat.", "He reads a long book now.", "It rains in the city today."] * 5
REFS = ["The cat sat on a mat.", "He reads a very long book.", "it rains in the city today."] * 5


def test_sacre_bleu_signature_and_interval() -> None:
    first = sacre_bleu(HYPS, REFS, lang=EN)
    assert first == sacre_bleu(HYPS, REFS, lang=EN)
    low, high = first["confidence_interval"]
    assert low < first["score"] < high
    assert "bs:1000|seed:12345|case:mixed" in first["signature"]
    lowered = sacre_bleu(HYPS, REFS, lang=EN, lowercase=True, n_bootstrap=2)
    assert "bs:2|" in lowered["signature"]
    assert "case:lc" in lowered["signature"]
    assert lowered["score"] > first["score"]


def test_unequal_inputs_are_refused() -> None:
    for count in (multi_bleu, partial(sacre_bleu, lang=EN)):
        with pytest.raises(UserError, match="got 3 and 2"):
            count(["a", "b", "c"], ["a", "b"])
        with pytest.raises(UserError, match="got 0 and 0"):
            count([], [])


def test_scores_are_normalized() -> None:
    hyps = ["Eins „zwei” drei-vier fünf.", "A b c d e"]
    refs = ['eins "zwei” drei-vier fünf.', "a b c d e"]
    cased = count_scores(hyps, refs, lang=DE)
    assert list(cased) == ["sacrebleu", "tokenized_bleu", "compound_split_bleu"]
    assert json.loads(json.dumps(cased)) == cased
    both = count_scores(hyps, refs, lang=DE, lowercase=True, normalize_punctuation=True)
    assert cased["tokenized_bleu"]["score"] < both["tokenized_bleu"]["score"] == 100.0
    assert both["compound_split_bleu"]["score"] < 100.0  # low quotes are not replaced
    assert "case:lc" in both["sacrebleu"]["signature"]
    assert "normalize-punctuation.perl -l de" in both["tokenized_bleu"]["how"]
    for kind in ("tokenized_bleu", "compound_split_bleu"):
        assert "lower-cased before tokenization" in both[kind]["how"]


def test_tokens_of_model_are_scored() -> None:
    refs = ["He left Köln. Then it rained for 5 days."]
    tokens = ["he left köln . then it rained for 5 days ."]
    text = ["he left köln. then it rained for 5 days."]
    scores = count_scores(text, refs, lang=EN, lowercase=True, hyp_tokens=tokens)
    assert scores["tokenized_bleu"]["score"] == pytest.approx(100)
    assert scores["tokenized_bleu"]["ref_len"] == 11
    assert "lower-cased after tokenization" in scores["tokenized_bleu"]["how"]
    # Without them, the full stop before a lower-case word is a part of its word.
    assert count_scores(text, refs, lang=EN, lowercase=True)["tokenized_bleu"]["ref_len"] == 10


@pytest.mark.parametrize("marks", ["„“", "“”", "„”", '""'])
def test_replaced_quotes_are_equal(marks: str) -> None:
    ref = 'eins "zwei" drei vier fünf … sechs'
    hyp = ref.replace('"', marks[0], 1).replace('"', marks[1], 1)
    for texts in (([hyp], [ref]), ([ref], [hyp])):
        split = count_scores(*texts, lang=DE)["compound_split_bleu"]
        assert split["score_quotes_replaced"] == pytest.approx(100)
        assert all(mark in str(split["how"]) for mark in marks)


def test_both_sides_are_normalized() -> None:
    """A mark that is replaced only in the hypothesis differs; replaced in both, it is equal."""
    text = ["eins zwei drei vier fünf … sechs sieben"]
    split = count_scores(text, text, lang=DE)["compound_split_bleu"]
    assert split["score"] < 99
    assert split["score_both_normalized"] == pytest.approx(100)


def assert_equal_as_printed(scores: dict[str, Any], expected: dict[str, Any]) -> None:
    digits = len(str(expected["score"]).partition(".")[2])
    assert round(scores["score"], digits) == expected["score"]
    for key in {"hyp_len", "ref_len"} & expected.keys():
        assert scores[key] == expected[key]
    if "precisions" in expected:
        printed = "/".join(f"{precision:.1f}" for precision in scores["precisions"])
        assert printed == expected["precisions"]
    if "bp" in expected:
        assert round(scores["brevity_penalty"], 3) == expected["bp"]


@pytest.mark.parametrize(
    "test_set",
    ["newstest2014-2737.en-de", pytest.param("newstest2014.en-fr", marks=pytest.mark.slow)],
)
def test_scores_equal_the_original_tools(test_set: str, shared_data: Path) -> None:
    folder = shared_data / "goldens" / "bleu"
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))[test_set]
    hyps = read_lines(folder / expected["hyp"])
    refs = read_lines(folder / expected["ref"])
    scores = count_scores(hyps, refs, lang=Language.of(expected["lang"]))
    assert_equal_as_printed(scores["sacrebleu"], expected["sacrebleu"])
    assert_equal_as_printed(scores["tokenized_bleu"], expected["tokenized_bleu"])
    split = scores["compound_split_bleu"]
    assert_equal_as_printed(split, expected["compound_split_bleu_as_the_script"])
    both = expected["compound_split_bleu_both_unicode_normalised"]
    assert round(split["score_both_normalized"], 2) == both["score"]
    if expected["lang"] == "de":
        assert round(split["score_quotes_replaced"], 2) == 31.62
