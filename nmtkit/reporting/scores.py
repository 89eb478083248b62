"""Names and formats of scores, and published results.

A set of scores is a value of `scores.json`: the scores of one test set, by kind. A score is named
by its kind ("sacrebleu"), or by its kind and a key ("compound_split_bleu.score_quotes_replaced")
where a kind has several values.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nmtkit.utils.text import counted

NOT_AVAILABLE = "not available"
METHOD_KEYS = ("how", "signature")  # keys of a score that describe its computation
# By target language: the score of a run that is comparable with Table 2.
TABLE_2_SCORES = {"de": "compound_split_bleu.score_quotes_replaced", "fr": "tokenized_bleu"}

# Names of scores, in the order of tables.
SCORE_NAMES = {
    "sacrebleu": "sacreBLEU",
    "bracket_f1": "bracket F1",
    "chrf": "chrF2",
    "ter": "TER",
    "tokenized_bleu": "tokenized BLEU",
    "compound_split_bleu": "compound-split BLEU",
    "compound_split_bleu.score_both_normalized": "compound-split BLEU, both normalized",
    "compound_split_bleu.score_quotes_replaced": "compound-split BLEU, quotes replaced",
}

_PUBLISHED_FILE = Path(__file__).with_name("published.toml")
# The published tables, by name.
TABLES: dict[str, Any] = tomllib.loads(_PUBLISHED_FILE.read_text(encoding="utf-8"))
# Notes on Table 2. The first describes the score of TABLE_2_SCORES for German.
NOTES: list[str] = TABLES.pop("notes")


def score_kind(name: str) -> str:
    """Return the kind of a score, such as "compound_split_bleu"."""
    kind, _, _ = name.partition(".")
    return kind


def score_value(scores: Mapping[str, Any], name: str) -> float | None:
    """Return a score from a set of scores; None if it was not computed."""
    kind, _, key = name.partition(".")
    value: float | None = scores.get(kind, {}).get(key or "score")
    return value


def format_score(scores: Mapping[str, Any], name: str, *, with_interval: bool = False) -> str:
    """Return a score as text.

    Args:
        scores: A set of scores.
        name: Name of the score.
        with_interval: Add the confidence interval, if there is one.

    Returns:
        The score; "not available" if its kind was computed by a version that lacked this score;
        "" if its kind was not computed.
    """
    value = score_value(scores, name)
    if value is None:
        return NOT_AVAILABLE if score_kind(name) in scores else ""
    text = f"{value:.2f}"
    interval = scores.get(name, {}).get("confidence_interval")
    if with_interval and interval:
        low, high = interval
        text += f" [{low:.2f}, {high:.2f}]"
    return text


def unscored_sentences(scores: Mapping[str, Any]) -> str | None:
    """Return the number of sentences that bracket F1 leaves out, as text; None if there are none.

    Args:
        scores: A set of scores.
    """
    score = scores.get("bracket_f1", {})
    n_errors = score.get("errors", 0)
    n_blank = score.get("skipped", 0)
    if not n_errors and not n_blank:
        return None
    return (
        f"bracket F1 leaves out {n_errors + n_blank:,} of {counted(score['sentences'], 'sentence')}"
        f": {counted(n_errors, 'error')}, {n_blank:,} blank"
    )


def score_methods(
    score_sets: Iterable[Mapping[str, Any]], kinds: Iterable[str] = SCORE_NAMES
) -> list[str]:
    """Return one line per method by which a score was computed, with sacreBLEU's signature.

    Args:
        score_sets: Sets of scores.
        kinds: Kinds of scores to describe.
    """
    kinds = list(kinds)
    lines = []
    for scores in score_sets:
        for kind in kinds:
            if kind in scores:
                # Scores of earlier versions may lack a key.
                methods = [scores[kind][key] for key in METHOD_KEYS if key in scores[kind]]
                lines.append(f"{SCORE_NAMES[kind]}: {'; '.join(methods)}")
    # Runs that were scored alike have the same line.
    return list(dict.fromkeys(lines))
