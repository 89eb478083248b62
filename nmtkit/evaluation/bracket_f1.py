"""Bracket F1 of parse trees, counted as EVALB (Sekine and Collins) counts with COLLINS.prm.

Section 6.3 reports it on section 23 of the Wall Street Journal (Table 4). The rules:

- Words whose tag is punctuation (, : `` '' .) are left out on both sides. The outer bracket TOP and
  brackets without a word do not count. ADVP and PRT are the same label, and a label ends before its
  first "-" or "=".
- A sentence whose hypothesis is blank is skipped. One with other words than its reference, or with
  brackets that do not match, is an error. Neither counts in any score; their numbers are reported.
- Crossing brackets are those of the hypothesis that begin inside a bracket of the reference and end
  outside of it, or the other way round.

Deviation: evalb limits words, brackets and characters of a sentence (200, 200, 5,000), and stops
after 11 errors (COLLINS.prm). Here there are no such limits.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from sacrebleu.metrics.base import Metric, Score, Signature

from nmtkit.evaluation.sacre import N_BOOTSTRAP, Lines, ScoreRecord, corpus_score, score_record

DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))  # by COLLINS.prm
SAME_LABELS = {"PRT": "ADVP"}
NODE = re.compile(r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)|\((?P<label>[^\s()]*)|(?P<end>\))")

Bracket = tuple[str, int, int]  # label, first word, and the word after the last one


@dataclass(frozen=True)
class Counts:
    """EVALB's counts of a sentence, or the sums over sentences."""

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

    def scores(self) -> dict[str, float]:
        """Return EVALB's scores by name, and numbers of sentences.

        Scores are in percent, except for the average number of crossing brackets. A score of
        nothing is 0.
        """
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
    length: int  # words, with punctuation
    words: list[str]  # without deleted ones
    tags: list[str]  # of these words
    brackets: list[Bracket]
    is_balanced: bool


def compare_trees(gold: str, test: str) -> Counts:
    """Compare a parse with its reference.

    Args:
        gold: The tree of the reference, on one line.
        test: The tree of the parser. It may be blank, or not a tree.
    """
    gold_tree = _read(gold)
    test_tree = _read(test)
    length = gold_tree.length
    # A blank hypothesis is skipped, whatever the reference is.
    if not test_tree.words:
        return Counts(length, skipped=1)
    is_balanced = gold_tree.is_balanced and test_tree.is_balanced
    if gold_tree.words != test_tree.words or not is_balanced:
        return Counts(length, errors=1)

    # A bracket counts with its multiplicity: unary chains repeat a span, sometimes a label too.
    gold_brackets = Counter(gold_tree.brackets)
    test_brackets = Counter(test_tree.brackets)
    crossing = _n_crossing(gold_tree.brackets, test_tree.brackets)
    n_correct_tags = 0
    for gold_tag, test_tag in zip(gold_tree.tags, test_tree.tags, strict=True):
        n_correct_tags += gold_tag == test_tag
    return Counts(
        length,
        matched=(gold_brackets & test_brackets).total(),
        n_gold=gold_brackets.total(),
        n_test=test_brackets.total(),
        complete=gold_brackets == test_brackets,
        crossing=crossing,
        no_crossing=crossing == 0,
        two_or_less_crossing=crossing <= 2,
        n_words=len(gold_tree.words),
        correct_tags=n_correct_tags,
    )


def _n_crossing(gold: Sequence[Bracket], test: Sequence[Bracket]) -> int:
    """Count the brackets in `test` (a parser's) that cross a bracket in `gold` (the reference)."""
    gold_spans = {(begin, end) for _, begin, end in gold}
    n_crossing = 0
    for _, first, last in test:
        for begin, end in gold_spans:
            if begin < first < end < last or first < begin < last < end:
                n_crossing += 1
                break
    return n_crossing


def _read(line: str) -> _Tree:
    """Read a line as EVALB does, also one that is not a tree.

    Errors are part of the score: they must be found in the same lines.
    """
    words: list[str] = []
    tags: list[str] = []
    all_brackets: list[Bracket] = []
    opened: list[tuple[int, str]] = []  # indices in `all_brackets`, and labels
    length = 0
    end = 0
    is_balanced = True
    for node in NODE.finditer(line):
        # Text between two nodes belongs to no tree.
        is_balanced = is_balanced and not line[end : node.start()].strip()
        end = node.end()
        tag = node["tag"]
        label = node["label"]
        if tag is not None:
            length += tag != "-NONE-"
            if tag not in DELETED:
                words.append(node["word"])
                tags.append(SAME_LABELS.get(tag, tag))
        elif label is not None:
            # Functions and indices follow the label: NP-SBJ-1, NP=2.
            label = re.split("[-=]", label, maxsplit=1)[0]
            opened.append((len(all_brackets), SAME_LABELS.get(label, label)))
            all_brackets.append(("", len(words), 0))  # its end is unknown yet
        elif opened:
            index, label = opened.pop()
            all_brackets[index] = (label, all_brackets[index][1], len(words))
        else:
            is_balanced = False
    is_balanced = is_balanced and not opened and not line[end:].strip()
    brackets = []
    for label, first, last in all_brackets:
        if first < last and label not in DELETED:
            brackets.append((label, first, last))
    return _Tree(length, words, tags, brackets, is_balanced)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


class BracketScore(Score):
    """F1 of all sentences, with the sums over them."""

    def __init__(self, everything: Counts) -> None:
        """Compute the score from the sums over all sentences."""
        super().__init__("bracket F1", everything.scores()["f1"])
        self.everything = everything


class BracketF1(Metric):
    """Bracket F1 as a metric of sacreBLEU, for its paired tests."""

    _SIGNATURE_TYPE = Signature

    def __init__(self) -> None:
        """Create the metric; it has no settings."""
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


def bracket_f1(hyps: Lines, refs: Lines, n_bootstrap: int = N_BOOTSTRAP) -> ScoreRecord:
    """Compute bracket F1 and the other scores that EVALB prints for all sentences.

    Args:
        hyps: Trees of the parser, one per line.
        refs: Trees of the reference.
        n_bootstrap: Number of resamples for the confidence interval.

    Returns:
        The scores, ready for JSON.
    """
    metric = BracketF1()
    score = corpus_score(metric, hyps, refs, n_bootstrap=n_bootstrap)
    assert isinstance(score, BracketScore)
    method = "EVALB with COLLINS.prm, all sentences; errors and skipped ones count in no score"
    other_scores = score.everything.scores()
    del other_scores["f1"]
    return {**score_record(metric, score, method), **other_scores}
