"""What figures of scores are called, how each was counted, and what is published."""

from collections.abc import Iterable, Mapping
from typing import Any

from nmtkit.tables import read_tables

HOW = ("how", "signature")  # keys of a score
NOT_AVAILABLE = "not available"
# By target language: the figure of a run that is comparable with Table 2.
TABLE_2_KINDS = {"de": "compound_split_bleu.score_quotes_replaced", "fr": "tokenized_bleu"}

TABLES: dict[str, Any] = read_tables(__file__, "published.toml")
SCORE_NAMES: dict[str, str] = TABLES.pop("score_names")
NOTES: list[str] = TABLES.pop("notes")  # the first: how the figure for "de" is counted


def kind_of(name: str) -> str:
    return name.partition(".")[0]


def figure(of_set: Mapping[str, Any], name: str) -> float | None:
    kind, _, beside = name.partition(".")
    found: float | None = of_set.get(kind, {}).get(beside or "score")
    return found


def shown(of_set: Mapping[str, Any], name: str, *, with_interval: bool = False) -> str:
    """Return a figure as it is printed, or what is there in its place."""
    if (value := figure(of_set, name)) is None:
        return NOT_AVAILABLE if kind_of(name) in of_set else ""
    low, high = of_set.get(name, {}).get("confidence_interval") or (None, None)
    interval = f" [{low:.2f}, {high:.2f}]" if with_interval and low is not None else ""
    return f"{value:.2f}{interval}"


def hows(of_sets: Iterable[Mapping[str, Any]], kinds: Iterable[str] = SCORE_NAMES) -> list[str]:
    """Return how each kind of score was counted, with the signature of sacreBLEU's."""
    lines = (
        f"{SCORE_NAMES[kind]}: {'; '.join(each[kind][key] for key in HOW if key in each[kind])}"
        for each in of_sets
        for kind in kinds
        if kind in each
    )
    return [*dict.fromkeys(lines)]
