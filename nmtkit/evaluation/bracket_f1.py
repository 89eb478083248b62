"""Bracket F1 of parse trees, counted as EVALB (Sekine and Collins) counts with COLLINS.prm.

Section 6.3 reports it on section 23 of the Wall Street Journal (Table 4). What matters:

- Words whose tag is punctuation (, : `` '' .) are left out on both sides. The outer bracket TOP and
  brackets without a word do not count. ADVP and PRT are the same label, and what follows a "-" or
  "=" in a label is cut off.
- A sentence whose hypothesis is blank is skipped. One with other words than its reference, or with
  brackets that do not match, is an error. Neither counts in any score; their numbers are reported.
- Crossing brackets are those of the hypothesis that begin inside a bracket of the reference and end
  outside of it, or the other way round.

Unlike evalb, there is no limit on words, brackets or characters of a sentence (200, 200, 5,000),
and no number of errors ends the evaluation (11 in COLLINS.prm).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric, Score, Signature

from nmtkit.evaluation.sacre import N_BOOTSTRAP, Facts, Lines, corpus_score, described

DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))  # by COLLINS.prm
SAME_LABELS = {"PRT": "ADVP"}
_NODE = re.compile(r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)|\((?P<label>[^\s()]*)|(?P<end>\))")


@dataclass(frozen=True)
class Counts:
    """What EVALB counts in a sentence, or the sums over sentences."""

    length: int = 0  # words of the reference, with punctuation
    sentences: int = 1
    errors: int = 0
    skipped: int = 0
    matched: int = 0  # brackets
    n_gold: int = 0
    n_test: int = 0
    complete: int = 0
    crossing: int = 0
    no_crossing: int = 0
    two_or_less_crossing: int = 0
    n_words: int = 0  # without punctuation
    correct_tags: int = 0

    def described(self) -> dict[str, float]:
        """Return numbers of sentences, and scores in percent, 0 where nothing counts."""
        valid = self.sentences - self.errors - self.skipped
        recall = _percent(self.matched, self.n_gold)
        precision = _percent(self.matched, self.n_test)
        return {
            "recall": recall,
            "precision": precision,
            "f1": 2 * precision * recall / (precision + recall) if self.matched else 0.0,
            "complete_match": _percent(self.complete, valid),
            "average_crossing": self.crossing / valid if valid else 0.0,  # brackets
            "no_crossing": _percent(self.no_crossing, valid),
            "two_or_less_crossing": _percent(self.two_or_less_crossing, valid),
            "tagging_accuracy": _percent(self.correct_tags, self.n_words),
            "sentences": self.sentences,
            "errors": self.errors,
            "skipped": self.skipped,
        }


class _Tree(NamedTuple):
    length: int
    words: list[tuple[str, str]]  # with the tags, without deleted ones
    brackets: list[tuple[str, int, int]]  # label, first word, and the word after the last one
    is_balanced: bool


def compare_trees(gold: str, test: str) -> Counts:
    gold_tree, test_tree = _read(gold), _read(test)
    length = gold_tree.length
    if not test_tree.words:
        return Counts(length, skipped=1)
    words = [[word for word, _ in tree.words] for tree in (gold_tree, test_tree)]
    if words[0] != words[1] or not (gold_tree.is_balanced and test_tree.is_balanced):
        return Counts(length, errors=1)
    gold_brackets, test_brackets = Counter(gold_tree.brackets), Counter(test_tree.brackets)
    gold_spans = {(first, end) for _, first, end in gold_brackets}
    crossing = sum(
        any(a < first < b < end or first < a < end < b for a, b in gold_spans)
        for _, first, end in test_tree.brackets
    )
    tags = zip(gold_tree.words, test_tree.words, strict=True)
    return Counts(
        length,
        matched=(gold_brackets & test_brackets).total(),
        n_gold=gold_brackets.total(),
        n_test=test_brackets.total(),
        complete=gold_brackets == test_brackets,
        crossing=crossing,
        no_crossing=crossing == 0,
        two_or_less_crossing=crossing <= 2,
        n_words=len(words[0]),
        correct_tags=sum(gold_tag == test_tag for (_, gold_tag), (_, test_tag) in tags),
    )


def _read(line: str) -> _Tree:
    """Read what EVALB would, which is more than trees: its errors are part of the score."""
    words: list[tuple[str, str]] = []
    found: list[tuple[str, int, int]] = []
    opened: list[tuple[int, str]] = []
    length, end, is_balanced = 0, 0, True
    for node in _NODE.finditer(line):
        is_balanced = is_balanced and not line[end : node.start()].strip()
        end = node.end()
        if (tag := node["tag"]) is not None:
            length += tag != "-NONE-"
            if tag not in DELETED:
                words.append((node["word"], SAME_LABELS.get(tag, tag)))
        elif (label := node["label"]) is not None:
            label = re.split("[-=]", label, maxsplit=1)[0]
            opened.append((len(found), SAME_LABELS.get(label, label)))
            found.append(("", len(words), 0))
        elif opened:
            place, label = opened.pop()
            found[place] = (label, found[place][1], len(words))
        else:
            is_balanced = False
    is_balanced = is_balanced and not opened and not line[end:].strip()
    brackets = [each for each in found if each[1] < each[2] and each[0] not in DELETED]
    return _Tree(length, words, brackets, is_balanced)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


class BracketScore(Score):
    """F1 of all sentences, with the sums over them."""

    def __init__(self, everything: Counts) -> None:
        super().__init__("bracket F1", everything.described()["f1"])
        self.everything = everything


class BracketF1(Metric):
    """Bracket F1 as a metric of sacreBLEU, so that its paired tests can compare parsers."""

    _SIGNATURE_TYPE = Signature

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Lines) -> dict[str, Any]:
        return {"gold": refs[0]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        return list(map(int, astuple(compare_trees(ref_kwargs["gold"], hypothesis))))

    def _compute_score_from_stats(self, stats: Sequence[int]) -> BracketScore:
        return BracketScore(Counts(*map(int, stats)))

    def _aggregate_and_compute(self, stats: list[list[int]]) -> BracketScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


def bracket_f1(hyps: Lines, refs: Lines, n_bootstrap: int = N_BOOTSTRAP) -> Facts:
    """Compute bracket F1 and all else that EVALB prints of all sentences, ready for JSON."""
    metric = BracketF1()
    score = corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap)
    assert isinstance(score, BracketScore)
    how = "EVALB with COLLINS.prm, all sentences; errors and skipped ones count in no score"
    others = score.everything.described()
    del others["f1"]
    return {**described(metric, score, how), **others}
