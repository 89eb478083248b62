"""The table of a study: the same on a terminal, on a page and in a paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from nmtkit.reporting.chart import Axis, Chart, Series
from nmtkit.reporting.code import OtherCode, code_notes, marked
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.scores import (
    NOT_AVAILABLE,
    NOTES,
    SCORE_NAMES,
    TABLE_2_KINDS,
    figure,
    hows,
    kind_of,
)

CHANGE = 1  # the column that a terminal has no room for
NOT_VERIFIED = "not verified here: `nmtkit verify` compares metrics.jsonl with its hash"


@dataclass(frozen=True)
class StudyRow:
    name: str
    variant: str  # the first row that differs from it in the seed alone, if any; else itself
    change: str  # the recipe or the overrides that the other rows do not have
    run: str  # what to type behind `nmtkit run`
    state: str  # "finished", "diverged", "being made", "stopped", "damaged" or "not run"
    why: str  # of any other state than "finished"
    n_parameters: int  # about, while the vocabulary is not known
    scored: str | None = None  # the fingerprint of its scores
    steps: int | None = None
    dev_perplexity: float | None = None  # per subword, of the checkpoint that is scored
    scores: dict[str, Any] = field(default_factory=dict)  # as `score` published them
    other_code: OtherCode = field(default_factory=dict)  # that made them
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """A figure of one row, or of several that differ in the seed alone."""

    mean: float
    deviation: float  # standard deviation of a sample; 0 of one row
    n: int

    @classmethod
    def of(cls, figures: Sequence[float | None]) -> "Spread | None":
        known = [each for each in figures if each is not None]
        deviation = stdev(known) if len(known) > 1 else 0.0
        return cls(fmean(known), deviation, len(known)) if known else None

    def cell(self, base: "Spread | None") -> str:
        beside = [f"n={self.n:,}"] if self.n > 1 else []
        if base is not None and base is not self:
            beside.append(f"{self.mean - base.mean:+.2f}")
        deviation = f" ± {self.deviation:.2f}" if self.n > 1 else ""
        return f"{self.mean:.2f}{deviation}" + (f" ({', '.join(beside)})" if beside else "")


@dataclass(frozen=True)
class Variant:
    """Rows that differ in the seed alone, as one row of the table."""

    rows: list[str]  # the first one names it
    change: str
    state: str
    n_parameters: int
    dev_perplexity: Spread | None
    score: Spread | None  # of the kind that is beside the published one
    published: dict[str, float]


@dataclass(frozen=True)
class StudyTable:
    """A study: what its rows reached, beside figures that are published."""

    name: str
    description: str
    bleu: str  # the kind that is beside the published one
    rows: list[StudyRow]
    variants: list[Variant]

    @classmethod
    def of(cls, name: str, description: str, bleu: str, rows: list[StudyRow]) -> "StudyTable":
        names = dict.fromkeys(row.variant for row in rows)
        together = ([row for row in rows if row.variant == name] for name in names)
        return cls(name, description, bleu, rows, [_variant(each, bleu) for each in together])


def _variant(rows: list[StudyRow], bleu: str) -> Variant:
    states = Counter(row.state for row in rows)
    state = ", ".join(f"{n} {state}" if len(states) > 1 else state for state, n in states.items())
    changes = rows[0].change.split(", ")
    return Variant(
        rows=[row.name for row in rows],
        change=", ".join(each for each in changes if not each.startswith("seed=")),
        state=marked(state, *(row.other_code for row in rows)),
        n_parameters=rows[0].n_parameters,
        dev_perplexity=Spread.of([row.dev_perplexity for row in rows]),
        score=Spread.of([_score(row, bleu) for row in rows]),
        published=next((row.published for row in rows if row.published), {}),
    )


def study_grid(table: StudyTable, variants: Sequence[Variant] | None = None) -> Grid:
    """Return one row a variant, all by default; what is published is beside what was reached."""
    base = table.variants[0]
    is_scored = {row.name for row in table.rows if row.scores}
    rows = []
    for each in table.variants if variants is None else variants:
        perplexity, score, published = each.dev_perplexity, each.score, each.published
        missing = NOT_AVAILABLE if is_scored & {*each.rows} else ""
        cells = (
            perplexity.cell(base.dev_perplexity) if perplexity else "",
            _published(each, base, "perplexity", 2),
            score.cell(base.score) if score else missing,
            _published(each, base, "bleu", 1),
            f"{each.n_parameters / 1e6:.2f}",
            f"{published['parameters']:.0f}" if "parameters" in published else "",
        )
        rows.append((each.rows[0], each.change, *cells, each.state))
    columns = (
        *("row", "change", "dev perplexity, not verified", "perplexity, published"),
        *(SCORE_NAMES[table.bleu], "BLEU, published", "params, 10^6", "params, published", "state"),
    )
    return Grid.of(f"rows of {table.name}", columns, rows, CHANGE + 1).filled()


def _published(one: Variant, base: Variant, name: str, n_digits: int) -> str:
    value, of_base = one.published.get(name), base.published.get(name)
    if value is None:
        return ""
    difference = "" if of_base is None or one is base else f" ({value - of_base:+.{n_digits}f})"
    return f"{value:.{n_digits}f}{difference}"


def study_chart(table: StudyTable, key: str) -> Chart | None:
    scored = [(place, one) for place, one in enumerate(table.variants) if one.score]
    if not scored:
        return None
    means = [(place, one.score.mean) for place, one in scored if one.score]
    labels = [one.rows[0] for _, one in scored]
    series = [Series("mean, or only score", means, "dots", labels=labels)]
    points = [
        (place, score)
        for place, one in scored
        for row in table.rows
        if row.name in one.rows and (score := _score(row, table.bleu)) is not None
    ]
    if len(points) > len(means):
        series.append(Series("each seed", points, "dots"))
    return Chart(
        f"{key}-scores",
        f"{SCORE_NAMES[table.bleu]} by row",
        series,
        Axis(low=-0.5, high=len(table.variants) - 0.5, ticks=[(-0.5, "")]),
        width=max(420, 40 * len(means)),
    )


def _score(row: StudyRow, bleu: str) -> float | None:
    """Return the score of a row on its first test set."""
    return figure(next(iter(row.scores.values()), {}), bleu)


def study_notes(table: StudyTable) -> list[str]:
    """Return what must be known to read the table, and why rows are not finished."""
    notes = []
    if any(each.score and each.score.n > 1 for each in table.variants):
        notes.append(
            "mean ± standard deviation of n rows that differ in the seed alone; another difference "
            "of this size is chance"
        )
    if any(row.scores for row in table.rows):
        notes.append("in brackets: the difference from the first row, or from its seeds' mean")
        notes.append(f"dev perplexity: per subword, end symbols counted; {NOT_VERIFIED}")
    if table.bleu == TABLE_2_KINDS["de"]:
        notes.append(NOTES[0])
    sets = [each for row in table.rows for each in [*row.scores.values()][:1]]
    notes += dict.fromkeys(f"test set: {each['test_set']['name']}" for each in sets)
    notes += hows(sets, [kind_of(table.bleu)])
    notes += [f"{row.name}: {row.state}, {row.why}" for row in table.rows if row.why]
    return notes + code_notes(*(row.other_code for row in table.rows))
