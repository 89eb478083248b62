"""The table of a study: the same on a terminal, on a page and in a paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from nmtkit.reporting.chart import Axis, Chart, Point, Series
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.score_table import data_cell, score_data
from nmtkit.reporting.scores import (
    NOT_AVAILABLE,
    NOTES,
    SCORE_NAMES,
    TABLE_2_SCORES,
    score_kind,
    score_methods,
    score_value,
)
from nmtkit.reporting.show import Form

CHANGE_COLUMN = 1  # omitted on a terminal, which is too narrow for it


@dataclass(frozen=True)
class StudyRun:
    """A row that ran with one seed, or is to run."""

    name: str  # the row's, with the seed if there are several
    seed: int
    run: str  # the arguments of `nmtkit run`
    state: str  # "finished", "diverged", "running", "stopped", "damaged" or "not run"
    why: str  # explains any other state than "finished"
    scored: str | None = None  # fingerprint of its scores
    steps: int | None = None
    dev_perplexity: float | None = None  # per subword, of the last averaged checkpoint
    scores: dict[str, Any] = field(default_factory=dict)  # as in `scores.json`

    @property
    def first_scores(self) -> dict[str, Any]:
        """The scores on the first test set, which tables show; empty if there are none."""
        return next(iter(self.scores.values()), {})


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a figure over the finished runs of a row."""

    mean: float
    deviation: float | None  # of a sample (n - 1); None for a single run
    n: int

    @classmethod
    def of(cls, figures: Sequence[float | None]) -> "Spread | None":
        """Compute the spread of the figures that are known; None if there are none."""
        known = [figure for figure in figures if figure is not None]
        if not known:
            return None
        deviation = stdev(known) if len(known) > 1 else None
        return cls(fmean(known), deviation, len(known))

    def cell(self, base: "Spread | None", n_runs: int) -> str:
        """Return the text of a table cell.

        Args:
            base: The spread of the first row; the cell shows the difference from it.
            n_runs: Number of runs of this row, finished or not.
        """
        # A single run has no deviation, and a row of one run needs no n.
        text = f"{self.mean:.2f}"
        if self.deviation is not None:
            text += f" ± {self.deviation:.2f}"
        remarks = []
        if n_runs > 1:
            remarks.append(f"n={self.n:,}")
        if base is not None and base is not self:
            remarks.append(f"{self.mean - base.mean:+.2f}")
        if remarks:
            text += f" ({', '.join(remarks)})"
        return text


@dataclass(frozen=True)
class StudyRow:
    """Runs that differ only in their seeds, and their common figures."""

    name: str
    change: str  # the recipe or the overrides that the other rows do not have
    n_parameters: int  # an estimate while the vocabulary is not known
    published: dict[str, float]
    dev_perplexity: Spread | None
    score: Spread | None  # the kind of BLEU that stands next to the published one
    runs: list[StudyRun]

    @property
    def state(self) -> str:
        """The state of all runs, such as "2 finished, 1 not run"."""
        counts = Counter(run.state for run in self.runs)
        if len(counts) == 1:
            return self.runs[0].state
        texts = []
        n_finished = counts.pop("finished", 0)
        if n_finished:
            texts.append(f"{n_finished:,} finished")
        for state, n in counts.items():
            texts.append(f"{n:,} {state}")
        return ", ".join(texts)


@dataclass(frozen=True)
class StudyTable:
    """The figures of all rows of a study, next to published ones."""

    name: str
    description: str
    bleu: str  # the name of the score that stands next to the published BLEU
    rows: list[StudyRow]

    def runs(self) -> list[StudyRun]:
        """Return the runs of all rows."""
        runs = []
        for row in self.rows:
            runs += row.runs
        return runs


def study_parts(table: StudyTable, form: Form) -> list[Grid | str]:
    """Return the description, the table and the notes of a study for standard output.

    Args:
        table: The study.
        form: The output format; the table for a terminal lacks the column of changes.
    """
    grid = study_grid(table)
    # A paper or a spreadsheet has space for the overrides.
    if form.table is None:
        grid = grid.without(CHANGE_COLUMN)
    return [table.description, grid, *study_notes(table)]


def study_grid(table: StudyTable, rows: Sequence[StudyRow] | None = None) -> Grid:
    """Return the figures of rows, next to published ones.

    Args:
        table: The study; differences are from its first row.
        rows: The rows to return; all by default.
    """
    columns = (
        "row",
        "change",
        "state",
        "dev perplexity",
        "perplexity, published",
        SCORE_NAMES[table.bleu],
        "BLEU, published",
        "params, 10^6",
        "params, published",
    )
    if rows is None:
        rows = table.rows
    lines = []
    for row in rows:
        lines.append(_row_cells(row, table.rows[0]))
    grid = Grid.of(table.name, columns, lines, 3).filled()
    return replace(grid, data=study_data(table))


def study_data(table: StudyTable) -> Grid:
    """Return the figures of all runs of a study as data: a row for every run."""
    columns = (
        "row",
        "change",
        "seed",
        "state",
        "steps",
        "dev_perplexity",
        "published_perplexity",
        table.bleu,
        "low",
        "high",
        "signature",
        "published_bleu",
        "parameters",
        "run",
    )
    lines = []
    for row in table.rows:
        for run in row.runs:
            score, low, high, signature = _score_cells(run, table.bleu)
            line = (
                row.name,
                row.change,
                data_cell(run.seed),
                run.state,
                data_cell(run.steps),
                data_cell(run.dev_perplexity),
                data_cell(row.published.get("perplexity")),
                score,
                low,
                high,
                signature,
                data_cell(row.published.get("bleu")),
                data_cell(row.n_parameters),
                f"nmtkit run {run.run}",
            )
            lines.append(line)
    return Grid.of("", columns, lines, len(columns))


def _score_cells(run: StudyRun, bleu: str) -> tuple[str, str, str, str]:
    """Return a score of a run as data: its value, low and high end of the interval, signature.

    Args:
        run: The run.
        bleu: Name of the score.
    """
    if run.first_scores:
        for _, _, metric, value, low, high, _, signature in score_data(run.first_scores):
            if metric == bleu:
                return value, low, high, signature
    return "", "", "", ""


def _row_cells(row: StudyRow, base: StudyRow) -> Row:
    """Return the cells of a row; `base` is the first row of the study."""
    n_runs = len(row.runs)
    perplexity = ""
    if row.dev_perplexity is not None:
        perplexity = row.dev_perplexity.cell(base.dev_perplexity, n_runs)
    score = ""
    if row.score is not None:
        score = row.score.cell(base.score, n_runs)
    elif "finished" in row.state:  # scored in other ways
        score = NOT_AVAILABLE
    # The paper prints whole millions.
    n_published = row.published.get("parameters")
    return (
        row.name,
        row.change,
        row.state,
        perplexity,
        _published_cell(row, base, "perplexity", n_digits=2),
        score,
        _published_cell(row, base, "bleu", n_digits=1),
        f"{row.n_parameters / 1e6:.2f}",
        "" if n_published is None else f"{n_published:.0f}",
    )


def _published_cell(row: StudyRow, base: StudyRow, name: str, *, n_digits: int) -> str:
    """Return a published figure, with its difference from that of the first row.

    Args:
        row: The row.
        base: The first row of the study.
        name: "perplexity" or "bleu".
        n_digits: Digits behind the decimal point.
    """
    value = row.published.get(name)
    if value is None:
        return ""
    text = f"{value:.{n_digits}f}"
    base_value = base.published.get(name)
    if base_value is not None and row is not base:
        text += f" ({value - base_value:+.{n_digits}f})"
    return text


def study_chart(table: StudyTable, key: str) -> Chart | None:
    """Return a chart of the scores, the first row on top; None without scores.

    Args:
        table: The study.
        key: The key of its part of a document.
    """
    means: list[Point] = []
    seeds: list[Point] = []
    ticks = []
    for number, row in enumerate(table.rows):
        if row.score is None:
            continue
        # The vertical axis points upwards, and the first row is on top.
        height = -number
        ticks.append((height, row.name))
        means.append((row.score.mean, height))
        for run in row.runs:
            score = run_score(run, table.bleu)
            if score is not None:
                seeds.append((score, height))
    if not means:
        return None
    series = [Series("mean, or only score", means, "dots")]
    # With one seed per row, its dot would cover that of the mean.
    if len(seeds) > len(means):
        series.append(Series("single seeds", seeds, "dots"))
    base = table.rows[0]
    return Chart(
        f"{key}-scores",
        f"{SCORE_NAMES[table.bleu]} by row",
        series,
        x=Axis(SCORE_NAMES[table.bleu]),
        y=Axis(low=0.5 - len(table.rows), high=0.5, ticks=ticks),
        marks=[] if base.score is None else [(base.score.mean, base.name)],
        plot=20.0 * len(table.rows),
    )


def run_score(run: StudyRun, bleu: str) -> float | None:
    """Return the score of a run on its first test set; None if it has none.

    Args:
        run: The run.
        bleu: Name of the score.
    """
    if not run.first_scores:
        return None
    return score_value(run.first_scores, bleu)


def study_notes(table: StudyTable) -> list[str]:
    """Return explanations of the table, and the reasons why runs are not finished."""
    runs = table.runs()
    first_sets = [run.first_scores for run in runs if run.first_scores]
    notes = []
    has_deviations = False
    for row in table.rows:
        has_deviations |= row.score is not None and len(row.runs) > 1
    if has_deviations:
        notes.append(
            "±: mean and standard deviation (of a sample, n - 1) of the n finished runs of a row, "
            "which differ only in their seeds"
        )
    if first_sets:
        notes.append("in brackets: n, and the difference from the first row's figure or mean")
        notes.append("dev perplexity: per subword, end symbols counted")
    if table.bleu == TABLE_2_SCORES["de"]:
        notes.append(NOTES[0])
    for scores in first_sets:
        note = f"test set: {scores['test_set']['name']}"
        if note not in notes:
            notes.append(note)
    notes += score_methods(first_sets, [score_kind(table.bleu)])
    for run in runs:
        if run.why:
            notes.append(f"{run.name}: {run.state}, {run.why}")
    return notes
