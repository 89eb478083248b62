"""The table of a study: the same on a terminal, on a page and in a paper."""

from collections.abc import Sequence
from dataclasses import replace

from nmtkit.evaluation.scores import (
    GERMAN_NOTE,
    NOT_AVAILABLE,
    SCORE_NAMES,
    TABLE_2_SCORES,
    score_data,
    score_kind,
    score_methods,
)
from nmtkit.rendering.chart import Axis, Chart, Point, Series
from nmtkit.rendering.grid import Grid, Row, data_cell, millions
from nmtkit.rendering.show import Form
from nmtkit.study.figures import Spread, StudyRow, StudyRun, StudyTable

CHANGE_COLUMN = 1  # omitted on a terminal, because it is too wide


def study_parts(table: StudyTable, form: Form) -> list[Grid | str]:
    """Return the description, the table and the notes of a study for standard output."""
    grid = study_grid(table)
    # A paper or a spreadsheet has space for the overrides.
    if form.table is None:
        grid = grid.without(CHANGE_COLUMN)
    return [table.description, grid, *study_notes(table)]


def study_grid(table: StudyTable, rows: Sequence[StudyRow] | None = None) -> Grid:
    """Return the figures of rows, by default of all, next to published ones."""
    columns = (
        "row",
        "change",
        "state",
        "dev perplexity",
        "perplexity, published",
        SCORE_NAMES[table.bleu],
        "BLEU, published",
        "parameters",
        "parameters, published",
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
    """Return a score of a run as data: its value, low and high end of the interval, signature."""
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
        perplexity = _spread_cell(row.dev_perplexity, base.dev_perplexity, n_runs)
    score = ""
    if row.score is not None:
        score = _spread_cell(row.score, base.score, n_runs)
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
        millions(row.n_parameters),
        "" if n_published is None else f"{n_published:.0f} M",
    )


def _spread_cell(spread: Spread, base: Spread | None, n_runs: int) -> str:
    """Return mean and deviation of a figure, with n and the difference from the first row.

    Args:
        spread: The figure of a row.
        base: The figure of the first row.
        n_runs: Number of runs of this row, finished or not.
    """
    # A single run has no deviation, and a row of one run needs no n.
    text = f"{spread.mean:.2f}"
    if spread.deviation is not None:
        text += f" ± {spread.deviation:.2f}"
    remarks = []
    if n_runs > 1:
        remarks.append(f"n={spread.n:,}")
    if base is not None and base is not spread:
        remarks.append(f"{spread.mean - base.mean:+z.2f}")
    if remarks:
        text += f" ({', '.join(remarks)})"
    return text


def _published_cell(row: StudyRow, base: StudyRow, name: str, *, n_digits: int) -> str:
    """Return a published figure, with its difference from that of the first row.

    Args:
        name: "perplexity" or "bleu".
        n_digits: Digits behind the decimal point.
    """
    value = row.published.get(name)
    if value is None:
        return ""
    text = f"{value:.{n_digits}f}"
    base_value = base.published.get(name)
    if base_value is not None and row is not base:
        text += f" ({value - base_value:+z.{n_digits}f})"
    return text


def study_chart(table: StudyTable, key: str) -> Chart | None:
    """Return a chart of the scores, the first row on top; None without scores.

    Args:
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
            score = run.score(table.bleu)
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
        notes.append(GERMAN_NOTE)
    for scores in first_sets:
        note = f"test set: {scores['test_set']['name']}"
        if note not in notes:
            notes.append(note)
    notes += score_methods(first_sets, [score_kind(table.bleu)])
    for run in runs:
        if run.why:
            notes.append(f"{run.name}: {run.state}, {run.why}")
    return notes
