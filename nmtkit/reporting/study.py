"""The table of a study: the same on a terminal and on a page."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from nmtkit.duration import duration
from nmtkit.reporting.code import code_note, marked
from nmtkit.reporting.cost import BY_TIME, COUNTED
from nmtkit.reporting.facts import StudyRow, StudyTable
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.published import COUNTED_DE, TABLE_2_KINDS
from nmtkit.reporting.scores import (
    NOT_AVAILABLE,
    SCORE_NAMES,
    figure,
    how_counted,
    kind_of,
)

Value = Callable[[StudyRow], float | None]


def study_grid(table: StudyTable) -> Grid:
    """Return one row a variant; what is published is beside what was reached."""
    bleu = _score(table.bleu)
    figures: list[tuple[str, Value, str, str]] = [  # heading, value, format, that of a difference
        ("dev perplexity", lambda row: row.dev_perplexity, ".2f", "+.2f"),
        ("published", lambda row: row.published.get("perplexity"), ".2f", "+.2f"),
        (SCORE_NAMES[table.bleu], bleu, ".2f", "+.2f"),
        ("published", lambda row: row.published.get("bleu"), ".1f", "+.1f"),
        ("params, 10^6", lambda row: row.n_parameters / 1e6, ".2f", ""),
        ("published", lambda row: row.published.get("parameters"), ".0f", ""),
    ]
    bases = {number: _mean(table, value) for number, (_, value, *_) in enumerate(figures)}
    groups = []
    for row in table.rows:
        cells = []
        for number, (_, value, form, of_difference) in enumerate(figures):
            found, base = value(row), bases[number]
            cell = "" if found is None else f"{found:{form}}"
            if value is bleu and found is None and row.scores:
                cell = NOT_AVAILABLE
            if found is not None and base is not None and of_difference and not row.is_base:
                cell += f" ({found - base:{of_difference}})"
            cells.append(cell)
        groups.append([(row.name, row.change, *cells, marked(row.state, row.other_code))])
    columns = ("row", "change", *(heading for heading, *_ in figures), "state")
    return Grid(f"rows of {table.name}", columns, 2, groups)


def cost_grid(table: StudyTable) -> Grid:
    """Return what the training of each finished row cost, counted in two ways."""
    costs = [(row, row.cost) for row in table.rows if row.cost is not None]
    groups: list[list[tuple[str, ...]]] = [
        [
            (
                row.name,
                f"{row.steps:,}",
                duration(cost.seconds),
                f"{cost.n_devices:,} x {cost.device}",
                "unknown" if cost.time_flops is None else f"{cost.time_flops:.2e} FLOPs",
                f"{cost.product_flops:.2e} FLOPs",
            )
        ]
        for row, cost in costs
    ]
    columns = ("row", "steps", "training", "devices", BY_TIME, COUNTED)
    return Grid(f"what the rows of {table.name} cost", columns, 1, groups)


def without_changes(grid: Grid) -> Grid:
    """Return the table for a terminal, which the names of the rows must do for."""
    columns = (grid.columns[0], *grid.columns[2:])
    groups = [[(row[0], *row[2:]) for row in group] for group in grid.groups]
    return replace(grid, columns=columns, n_labels=1, groups=groups)


def study_notes(table: StudyTable) -> list[str]:
    """Return what must be known to read the table, and why rows are not finished."""
    notes = []
    bases = [row for row in table.rows if row.is_base and row.state == "finished"]
    if len(bases) > 1:
        spans = [
            f"{name} {_span(bases, value)}"
            for name, value in (
                ("dev perplexity", lambda row: row.dev_perplexity),
                (SCORE_NAMES[table.bleu], _score(table.bleu)),
            )
        ]
        notes.append(
            f"{len(bases)} rows differ in the seed alone: {', '.join(spans)}; other differences of "
            "this size are chance"
        )
    if any(row.state == "finished" for row in table.rows):
        notes.append("in brackets: the difference from base, or from the mean of its seeds")
        notes.append("dev perplexity: per subword of the development set, end symbols counted")
    scores = [each for row in table.rows for each in list(row.scores.items())[:1]]
    if table.bleu == TABLE_2_KINDS["de"]:
        notes.append(COUNTED_DE)
    kind = kind_of(table.bleu)
    notes += dict.fromkeys(
        f"{SCORE_NAMES[table.bleu]} of {name}: {how_counted(each[kind])}"
        for name, each in scores
        if kind in each
    )
    notes += [f"{row.name}: {row.state}, {row.why}" for row in table.rows if row.why]
    of_code: dict[str, list[str]] = {}
    for row in table.rows:
        if note := code_note(row.other_code):
            of_code.setdefault(note, []).append(row.name)
    notes += [f"{', '.join(names)}: {note}" for note, names in of_code.items()]
    return notes


def _score(name: str) -> Value:
    """Return what finds the score of a row on its first test set."""

    def score(row: StudyRow) -> float | None:
        return figure(next(iter(row.scores.values()), {}), name)

    return score


def _mean(table: StudyTable, value: Value) -> float | None:
    found = _values([row for row in table.rows if row.is_base], value)
    return fmean(found) if found else None


def _span(rows: Sequence[StudyRow], value: Value) -> str:
    found = _values(rows, value)
    return f"{min(found):.2f} to {max(found):.2f}" if found else "unknown"


def _values(rows: Sequence[StudyRow], value: Value) -> list[float]:
    return [found for row in rows if (found := value(row)) is not None]
