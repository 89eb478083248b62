"""What bracket F1 is reached without a parser, for comparison: pipelines/README.md reports it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmtkit.corpus.linearized import PUNCTUATION, linearize, read_back
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.sources.source import Pair
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import read_trees

DEMO = Path(__file__).resolve().parents[2] / "data" / "trees"
REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "treebank"
N_SECTION_00, N_FIRST_HALF = 1_921, 996  # trees of section 00, and of its files 0001 to 0049


def right_branching(words: Sequence[str], label: str) -> str:
    """Each word opens a phrase that goes on to the end; a final full stop is outside of them."""
    end = len(words) - (words[-1] in PUNCTUATION)
    n_phrases = max(0, end - 2)
    opened = ["(S", *(f"({label}" for _ in range(n_phrases))]
    tokens = [token for pair in zip(opened, ["XX"] * len(opened), strict=True) for token in pair]
    tokens += ["XX"] * (end - len(opened)) + [f"){label}"] * n_phrases
    return read_back(" ".join([*tokens, *["XX"] * (len(words) - end), ")S"]), words).tree


class MostFrequent:
    """The most frequent tree of the nearest length in training, the first one of several."""

    def __init__(self, training: Sequence[Pair]) -> None:
        self._by_length: dict[int, Counter[str]] = {}
        for words, tree in training:
            seen = self._by_length.setdefault(len(words.split()), Counter())
            seen[linearize(tree, "tags")] += 1

    def __call__(self, words: Sequence[str]) -> str:
        near = min(self._by_length, key=lambda length: (abs(length - len(words)), length))
        return read_back(self._by_length[near].most_common(1)[0][0], words).tree


def baselines(training: Sequence[Pair], test: Sequence[Pair]) -> dict[str, float]:
    """The score of both; right-branching phrases have the label that scores best."""
    frequent = MostFrequent(training)
    gold = [tree for _, tree in test]
    found = {"most frequent": [frequent(words.split()) for words, _ in test]} | {
        f"right-branching {label}": [right_branching(words.split(), label) for words, _ in test]
        for label in ("VP", "NP", "S", "PP")
    }
    return {name: round(bracket_f1(hyps, gold, 1)["score"], 2) for name, hyps in found.items()}


def test_both_are_trees_of_their_words() -> None:
    assert right_branching(["a", "b", "c", "."], "VP") == (
        "(TOP (S (XX a) (VP (XX b) (XX c)) (. .)))"
    )
    assert right_branching(["a"], "VP") == "(TOP (S (XX a)))"
    assert right_branching([","], "VP") == "(TOP (S (, ,)))"
    frequent = MostFrequent(
        [("x", "(TOP (NP (NN x)))"), ("y", "(TOP (VP (VB y)))"), ("z", "(TOP (VP (VB z)))")]
    )
    assert frequent(["x"]) == "(TOP (VP (VB x)))"
    assert frequent(["x", "y"]) == "(TOP (VP (VB x) (XX y)))"


def test_on_the_demo_treebank() -> None:
    training, test = (
        list(read_trees(TextFile(DEMO / f"{split}.mrg"))) for split in ("train", "test")
    )
    found = baselines(training, test)
    assert found["right-branching VP"] == max(
        score for name, score in found.items() if name != "most frequent"
    )
    assert (found["right-branching VP"], found["most frequent"]) == (18.01, 28.39)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real treebank in ../shared")
def test_on_the_sample_of_the_penn_treebank() -> None:
    [path] = REAL.glob("*.mrg")
    pairs = list(read_trees(TextFile(path)))
    found = baselines(pairs[N_SECTION_00:], pairs[N_FIRST_HALF:N_SECTION_00])
    assert (found["right-branching VP"], found["most frequent"]) == (16.11, 16.15)
