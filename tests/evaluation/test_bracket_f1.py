"""Bracket F1: what EVALB prints, to the digit."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tree import Tree

from nmtkit.errors import UserError
from nmtkit.evaluation.bracket_f1 import (
    COLLINS,
    BracketF1,
    BracketScore,
    Counts,
    Parameters,
    Sentence,
    bracket_f1,
    compare_trees,
)
from nmtkit.evaluation.significance import paired_test

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
GOLDENS = SHARED / "goldens" / "parseval"
needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs the files of ../shared")


def read_parameters(path: Path) -> Parameters:
    values: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        key, _, value = line.strip().partition(" ")
        if value and not key.startswith("#"):
            values.setdefault(key, []).append(value.strip())
    pairs = {
        key: dict(value.split()[::-1] for value in values.get(key, ()))
        for key in ("EQ_LABEL", "EQ_WORD")
    }
    assert values["LABELED"] == ["1"]
    return Parameters(
        frozenset(values["DELETE_LABEL"]),
        frozenset(values["DELETE_LABEL_FOR_LENGTH"]),
        pairs["EQ_LABEL"],
        pairs["EQ_WORD"],
        int(values["CUTOFF_LEN"][0]),
    )


MEASURES = (
    *("recall", "precision", "f1", "complete_match", "average_crossing", "no_crossing"),
    *("two_or_less_crossing", "tagging_accuracy"),
)


def numbers_of(gold: list[str], test: list[str], parameters: Parameters) -> list[str]:
    """All numbers that EVALB prints, in its order."""

    def percent(part: float, whole: float) -> str:
        return f"{100 * part / whole if whole else 0:.2f}"

    def row(s: Sentence | Counts) -> list[object]:
        shares = percent(s.matched, s.n_gold), percent(s.matched, s.n_test)
        counts = s.matched, s.n_gold, s.n_test, s.crossing, s.n_words, s.correct_tags
        return [*shares, *counts, percent(s.correct_tags, s.n_words)]

    score = BracketF1(parameters).corpus_score(test, [gold])
    assert isinstance(score, BracketScore)
    found: list[object] = []
    for number, pair in enumerate(zip(gold, test, strict=True), 1):
        sentence = compare_trees(*pair, parameters)
        found += [number, sentence.length, sentence.status, *row(sentence)]
    found += row(score.everything)
    for counts, heading in ((score.everything, []), (score.short, [parameters.cutoff_length])):
        valid = counts.sentences - counts.errors - counts.skipped
        found += [*heading, counts.sentences, counts.errors, counts.skipped, valid]
        for key in MEASURES:
            name = [2] if key == "two_or_less_crossing" else []
            found += [*name, f"{counts.described()[key]:.2f}"]
    return list(map(str, found))


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@needs_goldens
def test_the_sample_of_evalb_gives_what_evalb_prints() -> None:
    gold, test = lines(GOLDENS / "sample.gld"), lines(GOLDENS / "sample.tst")
    expected = (GOLDENS / "sample.evalb-output.txt").read_text(encoding="utf-8")
    ours = numbers_of(gold, test, read_parameters(GOLDENS / "sample.prm"))
    assert ours == re.findall(r"\d+(?:\.\d+)?", expected)


@needs_goldens
def test_the_default_parameters_are_those_of_collins() -> None:
    assert read_parameters(GOLDENS / "COLLINS.prm") == COLLINS


GOLD = "(TOP (S (NP (DT The) (NN cat)) (VP (VBD sat) (PRT (RP up))) (. .)))"


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (GOLD, (5, 0, 4, 4, 4, 0, 4, 4)),
        (GOLD.replace("PRT", "ADVP"), (5, 0, 4, 4, 4, 0, 4, 4)),
        (GOLD.replace("(NP ", "(NP-SBJ=1 "), (5, 0, 4, 4, 4, 0, 4, 4)),
        (GOLD.replace(" (. .)", ""), (5, 0, 4, 4, 4, 0, 4, 4)),
        (GOLD.replace("(. .)", "(: ;)"), (5, 0, 4, 4, 4, 0, 4, 4)),
        (GOLD.replace("(TOP (S", "(S (X"), (5, 0, 4, 4, 5, 0, 4, 4)),
        (GOLD.replace("VBD", "VB"), (5, 0, 4, 4, 4, 0, 4, 3)),
        ("(TOP (S (DT The) (X (NN cat) (VBD sat)) (RP up) (. .)))", (5, 0, 1, 4, 2, 1, 4, 4)),
        ("", (5, 2, 0, 0, 0, 0, 0, 0)),
        (GOLD.replace("cat", "dog"), (5, 1, 0, 0, 0, 0, 0, 0)),
        (GOLD.replace("RP up", ", up"), (5, 1, 0, 0, 0, 0, 0, 0)),
        (GOLD[:-1], (5, 1, 0, 0, 0, 0, 0, 0)),
        (GOLD + ")", (5, 1, 0, 0, 0, 0, 0, 0)),
        (GOLD + " x", (5, 1, 0, 0, 0, 0, 0, 0)),
    ],
)
def test_what_counts_of_a_sentence(test: str, expected: tuple[int, ...]) -> None:
    assert compare_trees(GOLD, test) == Sentence(*expected)


labels = st.sampled_from(("NP", "VP", "ADVP", "PRT"))


def bracketed(data: st.DataObject, leaves: list[str]) -> str:
    if len(leaves) == 1 or data.draw(st.booleans()):
        return " ".join(leaves)
    cut = data.draw(st.integers(1, len(leaves) - 1))
    parts = [bracketed(data, leaves[:cut]), bracketed(data, leaves[cut:])]
    return f"({data.draw(labels)} {' '.join(parts)})"


@given(st.data(), st.integers(1, 9))
def test_brackets_are_those_that_nltk_finds(data: st.DataObject, n_words: int) -> None:
    leaves = [f"(NN w{i})" for i in range(n_words)]
    trees = [f"(TOP (S {bracketed(data, leaves)}))" for _ in range(2)]
    spans = [sorted(spans_of(Tree.fromstring(tree))) for tree in trees]
    matched, rest = 0, list(spans[1])
    for bracket in spans[0]:
        if bracket in rest:
            rest.remove(bracket)
            matched += 1
    crossing = sum(
        any(len({*range(*one), *range(*two)}) not in (one[1] - one[0], two[1] - two[0])
            and {*range(*one)} & {*range(*two)} for _, *two in spans[0])
        for _, *one in spans[1]
    )  # fmt: skip
    found = compare_trees(trees[0], trees[1])
    assert found == Sentence(
        n_words, 0, matched, len(spans[0]), len(spans[1]), crossing, n_words, n_words
    )


def spans_of(tree: Tree) -> list[tuple[str, int, int]]:
    found = []
    for position in tree.treepositions():
        node = tree[position]
        if isinstance(node, Tree) and isinstance(node[0], Tree) and node.label() != "TOP":
            leaves = [
                i
                for i in range(len(tree.leaves()))
                if tree.leaf_treeposition(i)[: len(position)] == position
            ]
            found.append((node.label().replace("PRT", "ADVP"), leaves[0], leaves[-1] + 1))
    return found


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real treebank in ../shared")
def test_real_trees_against_themselves_are_perfect() -> None:
    from nmtkit.sources.text import TextFile
    from nmtkit.sources.treebank import read_trees

    [path] = (SHARED / "treebank").glob("*.mrg")
    raw = lines(path)[:400]
    normalized = [tree for _, tree in read_trees(TextFile(path))][:400]
    for hyps in (raw, normalized):
        found = bracket_f1(hyps, hyps, n_bootstrap=1)
        # In raw trees, the outer bracket has no label. Like EVALB, we count it.
        perfect = {"score", "recall", "precision", "complete_match", "tagging_accuracy"}
        assert {found[key] for key in perfect} == {100.0}
        assert (found["errors"], found["skipped"], found["average_crossing"]) == (0, 0, 0)


def test_the_paired_tests_of_sacrebleu_take_it() -> None:
    refs = [GOLD.replace("cat", f"w{i}") for i in range(40)]
    worse = [tree.replace("VP", "NP") for tree in refs]
    for test in ("paired_bootstrap", "approximate_randomization"):
        first, second = paired_test(test, [refs, worse], refs, metrics=[BracketF1()])
        assert first["bracket_f1"]["score"] == 100
        assert second["bracket_f1"]["score"] == 75
        assert second["bracket_f1"]["p_value"] < 0.01


def test_the_interval_holds_the_score_and_the_signature_tells_the_resamples() -> None:
    refs = [GOLD.replace("cat", f"w{i}") for i in range(20)]
    hyps = [tree.replace("VP", "NP") if i % 3 else tree for i, tree in enumerate(refs)]
    found = bracket_f1(hyps, refs, n_bootstrap=200)
    low, high = found["confidence_interval"]
    assert low < found["score"] < high
    assert re.fullmatch(r"nrefs:1\|bs:200\|seed:12345\|version:\S+", found["signature"])
    assert found["up_to_40_words"]["f1"] == found["score"]


def test_nothing_that_counts_is_no_division_by_zero() -> None:
    found = bracket_f1(["", ""], [GOLD, GOLD], n_bootstrap=10)
    assert (found["score"], found["skipped"], found["complete_match"]) == (0, 2, 0)


@pytest.mark.parametrize("texts", [([], []), ([GOLD], [GOLD, GOLD])])
def test_texts_that_do_not_belong_together_are_refused(texts: tuple[list[str], list[str]]) -> None:
    with pytest.raises(UserError, match="bracket F1 needs one reference per hypothesis"):
        bracket_f1(*texts)
