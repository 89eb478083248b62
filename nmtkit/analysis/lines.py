"""The lines of a test set where one system is worst, or where several systems differ most."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from nmtkit.analysis.test_sets import TestSet
from nmtkit.reporting.grid import Grid, Row
from nmtkit.utils.language import TREE


def telling_lines(
    systems: Sequence[Sequence[str]], test_set: TestSet, n: int, *, lowercase: bool
) -> dict[str, Any]:
    """Return n lines with their numbers, from 1, and a score of each system, and how it is counted.

    They are those with the lowest scores of one system, or the largest range of several; of equal
    ones, the first. The metric is chrF, which tells short lines apart where BLEU is 0.
    """
    from nmtkit.evaluation.bracket_f1 import BracketF1  # sacreBLEU is slow to import
    from nmtkit.evaluation.sacre import Chrf

    of_trees = (BracketF1(), "bracket F1")
    metric, name = of_trees if test_set.lang == TREE else (Chrf(lowercase=lowercase), "chrF2")
    found: list[dict[str, Any]] = []
    for index, hyps in enumerate(zip(*systems, strict=True)):
        if len(systems) > 1 and len(set(hyps)) == 1:
            continue
        refs = [reference[index] for reference in test_set.references]
        found.append(
            {
                "line": index + 1,
                "src": None if test_set.src is None else test_set.src[index],
                "references": refs,
                "hyps": list(hyps),
                "scores": [float(metric.sentence_score(hyp, refs).score) for hyp in hyps],
            }
        )
    is_one = len(systems) == 1
    found.sort(key=lambda each: min(each["scores"]) - (0 if is_one else max(each["scores"])))
    signature = str(metric.get_signature()) if found else ""
    return {"metric": name, "signature": signature, "lines": found[:n]}


def lines_grid(
    lines: Sequence[Mapping[str, Any]], names: Sequence[str], head: str, metric: str
) -> Grid:
    """Return lines with brackets round what the first system has otherwise, or in it all others."""
    groups: list[list[Row]] = []
    for each in lines:
        baseline, *others = each["hyps"]
        texts = [marked(baseline, others), *(marked(other, [baseline]) for other in others)]
        group: list[Row] = [] if each["src"] is None else [("source", each["src"], "")]
        group += [("reference", reference, "") for reference in each["references"]]
        scores = (f"{score:.1f}" for score in each["scores"])
        group += zip(names, texts, scores, strict=True)
        groups.append([(f"{each['line']:,}", *row) for row in group])
    return Grid("", ("line", "", head, metric), 3, groups)


def marked(hyp: str, others: Sequence[str]) -> str:
    """Return a line with brackets round the words that others do not have there."""
    words = hyp.split(" ")
    is_other = [False] * len(words)
    for other in others:
        matcher = SequenceMatcher(None, words, other.split(" "))
        for what, begin, end, *_ in matcher.get_opcodes():
            if what != "equal":
                is_other[begin:end] = [True] * (end - begin)
    pieces = []
    for key, group in groupby(zip(words, is_other, strict=True), key=lambda each: each[1]):
        text = " ".join(word for word, _ in group)
        pieces.append(f"[{text}]" if key else text)
    return " ".join(pieces)
