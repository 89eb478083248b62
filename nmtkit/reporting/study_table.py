"""The table of a study: the same on a terminal, on a page and in a paper."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from nmtkit.reporting import scores
from nmtkit.reporting.chart import Axis, Chart, Series
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form

CHANGE = 1  # the column that a terminal has no room for


@dataclass(frozen=True)
class StudyRun:
    """A row that ran with one seed, or is to run."""

    name: str  # the row's; with its seed where there are several
    seed: int
    run: str  # what to type behind `nmtkit run`
    state: str  # "finished", "diverged", "being made", "stopped", "damaged" or "not run"
    why: str  # of any other state than "finished"
    scored: str | None = None  # the fingerprint of its scores
    steps: int | None = None
    dev_perplexity: float | None = None  # per subword, of the checkpoint that is scored
    scores: dict[str, Any] = field(default_factory=dict)  # as `score` published them


@dataclass(frozen=True)
class Spread:
    """A figure of the finished runs of a row."""

    mean: float
    deviation: float | None  # standard deviation of a sample (n - 1); None of one run
    n: int

    @classmethod
    def of(cls, figures: Sequence[float | None]) -> "Spread | None":
        known = [each for each in figures if each is not None]
        deviation = stdev(known) if len(known) > 1 else None
        return cls(fmean(known), deviation, len(known)) if known else None

    def cell(self, base: "Spread | None", n_runs: int) -> str:
        beside = [f"n={self.n:,}"] if n_runs > 1 else []
        if base is not None and base is not self:
            beside.append(f"{self.mean - base.mean:+.2f}")
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}" + (f" ({', '.join(beside)})" if beside else "")


@dataclass(frozen=True)
class StudyRow:
    """Runs that differ in the seed alone, and what they reached together."""

    name: str
    change: str  # the recipe or the overrides that the other rows do not have
    n_parameters: int  # about, while the vocabulary is not known
    published: dict[str, float]
    dev_perplexity: Spread | None
    score: Spread | None  # of the kind that is beside the published one
    runs: list[StudyRun]

    @property
    def state(self) -> str:
        states = Counter(sorted((run.state for run in self.runs), key=lambda it: it != "finished"))
        counted = (f"{n:,} {one}" if len(states) > 1 else one for one, n in states.items())
        return ", ".join(counted)


@dataclass(frozen=True)
class StudyTable:
    """A study: what its rows reached, beside figures that are published."""

    name: str
    description: str
    bleu: str  # the kind that is beside the published one
    rows: list[StudyRow]

    def runs(self) -> list[StudyRun]:
        return [run for row in self.rows for run in row.runs]


def study_parts(table: StudyTable, form: Form) -> list[Grid | str]:
    """Return what is shown of a study beside what else a command shows."""
    grid = study_grid(table)
    return [table.description, grid if form.table else grid.without(CHANGE), *study_notes(table)]


def study_grid(table: StudyTable, rows: Sequence[StudyRow] | None = None) -> Grid:
    """Return all rows by default; what is published is beside what was reached."""
    base, lines = table.rows[0], []
    for row in table.rows if rows is None else rows:
        perplexity, score, published = row.dev_perplexity, row.score, row.published
        n = len(row.runs)
        missing = scores.NOT_AVAILABLE if any(run.scores for run in row.runs) else ""
        cells = (
            perplexity.cell(base.dev_perplexity, n) if perplexity else "",
            _published(row, base, "perplexity", 2),
            score.cell(base.score, n) if score else missing,
            _published(row, base, "bleu", 1),
            f"{row.n_parameters / 1e6:.2f}",
            f"{published['parameters']:.0f}" if "parameters" in published else "",
        )
        lines.append((row.name, row.change, row.state, *cells))
    columns = (
        *("row", "change", "state", "dev perplexity", "perplexity, published"),
        *(scores.SCORE_NAMES[table.bleu], "BLEU, published", "params, 10^6", "params, published"),
    )
    return Grid.of(f"rows of {table.name}", columns, lines, 3).filled()


def _published(row: StudyRow, base: StudyRow, name: str, n_digits: int) -> str:
    value, of_base = row.published.get(name), base.published.get(name)
    if value is None:
        return ""
    difference = "" if of_base is None or row is base else f" ({value - of_base:+.{n_digits}f})"
    return f"{value:.{n_digits}f}{difference}"


def study_chart(table: StudyTable, key: str) -> Chart | None:
    """Return the scores of each row, the first on top."""
    scored = [(-place, row, row.score) for place, row in enumerate(table.rows) if row.score]
    if not scored:
        return None
    means = [(score.mean, place) for place, _, score in scored]
    series = [Series("mean, or only score", means, "dots")]
    points = [
        (score, place)
        for place, row, _ in scored
        for run in row.runs
        if (score := score_of(run, table.bleu)) is not None
    ]
    if len(points) > len(means):
        series.append(Series("each seed", points, "dots"))
    return Chart(
        f"{key}-scores",
        f"{scores.SCORE_NAMES[table.bleu]} by row",
        series,
        y=Axis(low=0.5 - len(table.rows), high=0.5, ticks=[(n, row.name) for n, row, _ in scored]),
        plot=20.0 * len(table.rows),
    )


def score_of(run: StudyRun, bleu: str) -> float | None:
    """Return the score of a run on its first test set."""
    return scores.figure(next(iter(run.scores.values()), {}), bleu)


def study_notes(table: StudyTable) -> list[str]:
    """Return what must be known to read the table, and why runs are not finished."""
    notes, runs = [], table.runs()
    if any(row.score and len(row.runs) > 1 for row in table.rows):
        notes.append(
            "±: mean and standard deviation (of a sample, n - 1) of the n finished runs of a row, "
            "which differ in the seed alone"
        )
    if any(run.scores for run in runs):
        notes.append("in brackets: n, and the difference from the first row's figure or mean")
        notes.append("dev perplexity: per subword, end symbols counted")
    if table.bleu == scores.TABLE_2_KINDS["de"]:
        notes.append(scores.NOTES[0])
    sets = [each for run in runs for each in [*run.scores.values()][:1]]
    notes += dict.fromkeys(f"test set: {each['test_set']['name']}" for each in sets)
    notes += scores.hows(sets, [scores.kind_of(table.bleu)])
    notes += [f"{run.name}: {run.state}, {run.why}" for run in runs if run.why]
    return notes
