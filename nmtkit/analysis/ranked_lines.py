"""The lines of a test set where one system is worst, or where several systems differ most."""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING, Any

from nmtkit.analysis.test_sets import TestSet
from nmtkit.rendering.grid import Grid, MarkedText, Row
from nmtkit.utils.language import TREE

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


def rank_lines(
    systems: Sequence[Sequence[str]], test_set: TestSet, n: int, *, lowercase: bool
) -> dict[str, Any]:
    """Find the lines with the lowest scores of one system, or the largest range of several.

    The metric is chrF, because sentence BLEU is 0 for many short lines; for trees, bracket F1.

    Args:
        test_set: The references, and the source text if it is known.
        n: Maximum number of lines.
        lowercase: Lowercase before scoring.

    Returns:
        "metric", its "signature", and "lines": the number of the line, from 1, its texts, and the
        scores of all systems. Equal lines keep their order.
    """
    from nmtkit.evaluation.bracket_f1 import BracketF1  # sacreBLEU is slow to import
    from nmtkit.evaluation.sacre import Chrf

    metric: Metric = BracketF1() if test_set.lang == TREE else Chrf(lowercase=lowercase)
    name = "bracket F1" if test_set.lang == TREE else "chrF2"
    lines: list[dict[str, Any]] = []
    for index, hyps in enumerate(zip(*systems, strict=True)):
        if len(systems) > 1 and len(set(hyps)) == 1:
            continue  # the systems do not differ
        refs = [reference[index] for reference in test_set.references]
        line = {
            "line": index + 1,
            "src": None if test_set.src is None else test_set.src[index],
            "references": refs,
            "hyps": list(hyps),
            "scores": [float(metric.sentence_score(hyp, refs).score) for hyp in hyps],
        }
        lines.append(line)
    if len(systems) == 1:
        lines.sort(key=lambda line: line["scores"][0])
    else:
        lines.sort(key=lambda line: min(line["scores"]) - max(line["scores"]))
    # sacreBLEU knows the signature only after it has scored a line.
    signature = str(metric.get_signature()) if lines else ""
    return {"metric": name, "signature": signature, "lines": lines[:n]}


def lines_grid(
    lines: Sequence[Mapping[str, Any]], names: Sequence[str], head: str, metric: str
) -> Grid:
    """Return a table of lines, with marked differences between systems.

    In the first system, words are marked that differ from any other system; in another system,
    those that differ from the first.

    Args:
        lines: The lines that `rank_lines` found.
        head: Head of the column of texts.
    """
    groups: list[list[Row]] = []
    for line in lines:
        number = f"{line['line']:,}"
        group: list[Row] = []
        if line["src"] is not None:
            group.append((number, "source", line["src"], ""))
        for reference in line["references"]:
            group.append((number, "reference", reference, ""))
        # Every difference is marked on both sides: in the baseline and in the other system.
        baseline, *others = line["hyps"]
        texts: list[str] = [mark_differences(baseline, others)]
        for other in others:
            texts.append(mark_differences(other, [baseline]))
        for name, text, score in zip(names, texts, line["scores"], strict=True):
            group.append((number, name, text, f"{score:.1f}"))
        groups.append(group)
    return Grid("", ("line", "", head, metric), 3, groups, has_texts=True)


def mark_differences(hyp: str, others: Sequence[str]) -> MarkedText:
    """Return a line whose words that differ from any of the other lines are marked."""
    # Joining the words again must give the line, also with several spaces in a row.
    words = hyp.split(" ")
    differs = [False] * len(words)
    for other in others:
        matcher = SequenceMatcher(None, words, other.split(" "))
        for operation, begin, end, *_ in matcher.get_opcodes():
            if operation != "equal":
                differs[begin:end] = [True] * (end - begin)
    # Neighbouring words share a pair of brackets.
    pieces = []
    for is_marked, group in groupby(zip(words, differs, strict=True), key=lambda pair: pair[1]):
        text = " ".join(word for word, _ in group)
        pieces.append((text, is_marked))
    return MarkedText(pieces)
