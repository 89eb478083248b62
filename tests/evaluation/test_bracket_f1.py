"""Bracket F1, compared with the output of EVALB."""

import re
from pathlib import Path

import pytest
from system.command import read_lines

from nmtkit.evaluation import bracket_f1 as bracket_f1_module
from nmtkit.evaluation.bracket_f1 import (
    DELETED,
    SAME_LABELS,
    BracketF1,
    BracketScore,
    Counts,
    bracket_f1,
    compare_trees,
)

MEASURES = (
    "recall",
    "precision",
    "f1",
    "complete_match",
    "average_crossing",
    "no_crossing",
    "two_or_less_crossing",
    "tagging_accuracy",
)


def evalb_numbers(gold: list[str], test: list[str]) -> list[str]:
    """The numbers that EVALB prints, in its order, without its part on short sentences."""

    def percent(part: float, whole: float) -> str:
        return f"{100 * part / whole if whole else 0:.2f}"

    def row(s: Counts) -> list[object]:
        shares = percent(s.matched, s.n_gold), percent(s.matched, s.n_test)
        counts = s.matched, s.n_gold, s.n_test, s.crossing, s.n_words, s.correct_tags
        return [*shares, *counts, percent(s.correct_tags, s.n_words)]

    score = BracketF1().corpus_score(test, [gold])
    assert isinstance(score, BracketScore)
    found: list[object] = []
    for number, pair in enumerate(zip(gold, test, strict=True), 1):
        sentence = compare_trees(*pair)
        status = sentence.errors + 2 * sentence.skipped
        found += [number, sentence.length, status, *row(sentence)]
    found += row(score.everything)
    counts = score.everything
    valid = counts.sentences - counts.errors - counts.skipped
    found += [counts.sentences, counts.errors, counts.skipped, valid]
    for key in MEASURES:
        name = [2] if key == "two_or_less_crossing" else []
        found += [*name, f"{counts.scores()[key]:.2f}"]
    return list(map(str, found))


def parameters(path: Path) -> tuple[frozenset[str], dict[str, str]]:
    """The deleted labels of a parameter file, and its labels that are equal to another one."""
    deleted = set()
    same_labels = {}
    for line in read_lines(path):
        words = line.split()
        if line.startswith("DELETE_LABEL"):
            deleted.add(words[1])
        elif line.startswith("EQ_LABEL"):
            _, label, same = words
            same_labels[same] = label
    return frozenset(deleted), same_labels


@pytest.fixture
def goldens(shared_data: Path) -> Path:
    return shared_data / "goldens" / "parseval"


def test_sample_equals_evalb(goldens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted, same_labels = parameters(goldens / "sample.prm")
    monkeypatch.setattr(bracket_f1_module, "DELETED", deleted)
    monkeypatch.setattr(bracket_f1_module, "SAME_LABELS", same_labels)
    # The sample expects "This" and "this" to be equal words.
    gold = [line.replace("This", "this") for line in read_lines(goldens / "sample.gld")]
    test = [line.replace("This", "this") for line in read_lines(goldens / "sample.tst")]
    expected = (goldens / "sample.evalb-output.txt").read_text(encoding="utf-8")
    all_lengths = expected.partition("-- len<=40 --")[0]
    assert evalb_numbers(gold, test) == re.findall(r"\d+(?:\.\d+)?", all_lengths)


def test_parameters_equal_collins(goldens: Path) -> None:
    assert parameters(goldens / "COLLINS.prm") == (DELETED, SAME_LABELS)


GOLD = "(TOP (S (NP (DT The) (NN cat)) (VP (VBD sat) (PRT (RP up))) (. .)))"


@pytest.mark.parametrize(
    ("test", "matched", "n_test", "crossing", "correct_tags"),
    [
        (GOLD, 4, 4, 0, 4),
        (GOLD.replace("PRT", "ADVP"), 4, 4, 0, 4),
        (GOLD.replace("(NP ", "(NP-SBJ=1 "), 4, 4, 0, 4),
        (GOLD.replace(" (. .)", ""), 4, 4, 0, 4),
        (GOLD.replace("(. .)", "(: ;)"), 4, 4, 0, 4),
        (GOLD.replace("(TOP (S", "(S (X"), 4, 5, 0, 4),
        (GOLD.replace("VBD", "VB"), 4, 4, 0, 3),
        ("(TOP (S (DT The) (X (NN cat) (VBD sat)) (RP up) (. .)))", 1, 2, 1, 4),
    ],
)
def test_counts_of_sentence(
    test: str, matched: int, n_test: int, crossing: int, correct_tags: int
) -> None:
    assert compare_trees(GOLD, test) == Counts(
        length=5,
        matched=matched,
        n_gold=4,
        n_test=n_test,
        complete=matched == n_test == 4,
        crossing=crossing,
        no_crossing=crossing == 0,
        two_or_less_crossing=True,
        n_words=4,
        correct_tags=correct_tags,
    )


@pytest.mark.parametrize(
    "test",
    [
        GOLD.replace("cat", "dog"),
        GOLD.replace("RP up", ", up"),
        GOLD[:-1],
        GOLD + ")",
        GOLD + " x",
    ],
)
def test_invalid_trees_are_errors(test: str) -> None:
    assert compare_trees(GOLD, test) == Counts(5, errors=1)


def test_interval_and_signature() -> None:
    refs = [GOLD.replace("cat", f"w{i}") for i in range(20)]
    hyps = [tree.replace("VP", "NP") if i % 3 else tree for i, tree in enumerate(refs)]
    found = bracket_f1(hyps, refs, n_bootstrap=200)
    low, high = found["confidence_interval"]
    assert low < found["score"] < high
    assert re.fullmatch(r"nrefs:1\|bs:200\|seed:12345\|version:\S+", found["signature"])
