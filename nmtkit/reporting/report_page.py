"""A report as one page of HTML, which report.html.j2 describes, and as Markdown without plots."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nmtkit.reporting.chart import Chart
from nmtkit.reporting.facts import StudyRow
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.link import Link
from nmtkit.reporting.page import TEMPLATES
from nmtkit.reporting.published import LANGUAGES, NOTES, TABLE_2
from nmtkit.reporting.report import (
    Report,
    RunFacts,
    artifacts_of,
    libraries,
    recipe_of,
    reproductions_grid,
    runs_grid,
    table_2,
    table_2_score,
    table_4,
    texts,
)
from nmtkit.reporting.scatter import Point, Scatter
from nmtkit.reporting.scores import SCORE_NAMES, how_counted
from nmtkit.reporting.study import cost_grid, study_grid, study_notes
from nmtkit.visible import visible

# What is measured by other commands, where it is not: the command to type.
EXHIBITS = {
    "table-1": ("Table 1: complexity, sequential operations, path length", "nmtkit bench layers"),
    "figures-3-5": ("Figures 3 to 5: attention", "nmtkit attention --bundle DIR"),
}


def render_html(report: Report) -> str:
    """Return the page as text."""
    return TEMPLATES.get_template("report.html.j2").render(
        report=report,
        recipe_of=recipe_of,
        made_by=_made_by(report),
        runs_grid=runs_grid(report),
        table_2=table_2(report),
        notes_of_table_2=NOTES,
        reproductions=reproductions_grid(report),
        scatters=list(_scatters(report)),
        studies=[
            (
                study,
                _linked(study_grid(study), report, study.rows),
                cost_grid(study),
                study_notes(study),
            )
            for study in report.studies
        ],
        table_4=table_4(report),
        exhibits=[
            (title, command, report.exhibits.get(key)) for key, (title, command) in EXHIBITS.items()
        ],
        runs=[
            (run, _on_page(run, number), artifacts_of(run), libraries(run), texts(run), _hows(run))
            for number, run in enumerate(report.runs)
        ],
    )


def _linked(grid: Grid, report: Report, rows: Sequence[StudyRow]) -> Grid:
    """Let the rows of a study lead to their runs."""
    anchors = {run.id: run.anchor for run in report.runs}
    groups = []
    for row, group in zip(rows, grid.groups, strict=True):
        anchor = anchors.get(row.scored or "")
        groups.append([(Link(name, anchor) if anchor else name, *cells) for name, *cells in group])
    return replace(grid, groups=groups)


def _on_page(run: RunFacts, number: int) -> list[Chart]:
    return [replace(curve, key=f"run-{number}-{curve.key}") for curve in run.curves]


def _hows(run: RunFacts) -> list[str]:
    """Return how each score of a run was counted."""
    return list(
        dict.fromkeys(
            f"{SCORE_NAMES.get(kind, kind)}: {how_counted(score)}"
            for of_set in run.scores.values()
            for kind, score in of_set.items()
            if isinstance(score, dict) and "how" in score
        )
    )


def _scatters(report: Report) -> Iterator[Scatter]:
    """Cost against BLEU of Table 2, for each language."""
    for lang, name in LANGUAGES.items():
        bleu = f"en_{lang}"
        points = [
            Point(row.model, getattr(row, f"{bleu}_flops"), getattr(row, bleu), is_ours=False)
            for row in TABLE_2
            if getattr(row, f"{bleu}_flops") and getattr(row, bleu)
        ]
        for run in report.runs:
            score = table_2_score(run)
            if run.languages[1] == lang and score and run.cost and run.cost.time_flops:
                points.append(Point(run.label, run.cost.time_flops, score, is_ours=True))
        yield Scatter(f"cost-{lang}", f"BLEU by training cost, {name}", points)


# Markdown


def render_markdown(report: Report) -> str:
    """Return the report without its plots."""
    parts = [
        "# nmtkit report",
        f"Written {report.written} by {_cell(_made_by(report))}; runs in {_cell(report.runs_dir)}.",
        "## Runs",
        _markdown(runs_grid(report)),
        "## Table 2",
        _markdown(table_2(report)),
        "\n".join(f"- {_cell(note)}" for note in NOTES),
        "## Reproductions",
        _markdown(reproductions_grid(report)),
    ]
    for study in report.studies:
        grid = _linked(study_grid(study), report, study.rows)
        parts += [f"## {_cell(study.name)}", _cell(study.description), _markdown(grid)]
        if (costs := cost_grid(study)).groups:
            parts.append(_markdown(costs))
        parts += [f"- {_cell(note)}" for note in study_notes(study)]
    parts += ["## Table 4", _markdown(table_4(report))]
    for key, (title, command) in EXHIBITS.items():
        parts.append(f"## {title}")
        if exhibit := report.exhibits.get(key):
            parts += [_markdown(panel.grid()) for panel in exhibit.panels]
            parts += [f"- {_cell(note)}" for note in exhibit.notes]
            parts.append(f"Made by {_cell(exhibit.command)}")
        else:
            parts.append(f"Not run: `{command}`")
    parts.append("## What the runs rest on")
    for run in report.runs:
        parts += [f'### <a id="{run.anchor}"></a>{_cell(run.label)}', _cell(run.description)]
        parts += [f"    {visible(command)}" for command in (run.command, run.verify)]
        parts += [f"- {stage}: {_cell(made)}" for stage, made in artifacts_of(run)]
        parts.append(_cell(libraries(run)))
        parts += [f"- {_cell(key)}: {_cell(identity)}" for key, identity in texts(run)]
        parts += [f"- {_cell(how)}" for how in _hows(run)]
        parts.append("\n".join(f"    {visible(line)}" for line in recipe_of(run).split("\n")))
    return "\n\n".join(part for part in parts if part) + "\n"


def _made_by(report: Report) -> str:
    return ", ".join(f"{name} {version}" for name, version in report.made_by.items())


def _markdown(grid: Grid) -> str:
    """Return a table."""
    aligned = ["---" if i < grid.n_labels else "--:" for i in range(len(grid.columns))]
    rows = [row for group in grid.groups for row in group]
    return "\n".join([_row(grid.columns), f"|{'|'.join(aligned)}|", *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Return text that Markdown shows as it is; a link stays one."""
    shown = re.sub(r"([\\|<>\[\]*_`&])", r"\\\1", visible(text))
    return f"[{shown}](#{text.target})" if isinstance(text, Link) else shown
