"""The report as a document: own runs, studies, published tables, and provenance."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nmtkit.config.loading import toml_value
from nmtkit.evaluation.scores import (
    DATA_COLUMNS,
    SCORE_NAMES,
    format_score,
    score_data,
    score_methods,
    score_signatures,
    shown_scores,
    unscored_sentences,
)
from nmtkit.rendering.chart import Axis, Chart, Point, Series, short_labels
from nmtkit.rendering.document import Part
from nmtkit.rendering.grid import Grid, Link, data_cell, millions
from nmtkit.rendering.show import as_json
from nmtkit.report.collection import Report, ScoredRun, run_label
from nmtkit.report.published_tables import (
    cost_cells,
    cost_chart,
    reproductions_grid,
    run_link,
    table_2_grid,
    table_4_grid,
)
from nmtkit.report.results import NOTES
from nmtkit.report.training_cost import BY_TIME, COUNTED
from nmtkit.stages.curves import DEV_SCORES
from nmtkit.stages.pipeline import STAGES
from nmtkit.study.figures import StudyRow, StudyTable
from nmtkit.study.study_table import study_chart, study_grid, study_notes

NO_RUNS = (
    "No run is scored yet. Start with `nmtkit run demo` (a few minutes); `nmtkit recipes` lists "
    "the others."
)
# Figures of the evaluations on dev, by their keys in metrics.jsonl.
DEV_FIGURES = {**DEV_SCORES, "dev_perplexity": "perplexity per subword"}


def report_document(report: Report) -> Part:
    """Return a report as a document. Tables without a run of yours come last, collapsed."""
    table_2 = table_2_grid(report.runs)
    results = []
    for number in range(len(report.studies)):
        results.append(_study_part(report, number))
    results += [
        _published_part("table-2", "Table 2", table_2, [cost_chart(table_2)], NOTES),
        _published_part("reproductions", "Reproductions", reproductions_grid(report.runs)),
        _published_part("table-4", "Table 4", table_4_grid(report.runs)),
    ]
    # What the user ran comes first; tables without own runs are together in one section.
    parts = [_runs_part(report)]
    folded = []
    for part in results:
        if part.is_folded:
            folded.append(part)
        else:
            parts.append(part)
    if folded:
        parts.append(
            Part(
                "published",
                "Not run here",
                text="These tables have no results of ours yet. `nmtkit run wmt14-en-de-base`, "
                "`nmtkit study table-3` and the other recipes that `nmtkit recipes` lists fill "
                "them.",
                parts=folded,
            )
        )
    if report.runs:
        provenance = list(map(_provenance_part, report.runs))
        parts.append(Part("rests-on", "Provenance of the runs", parts=provenance))
    versions = []
    for program, version in report.made_by.items():
        versions.append(f"{program} {version}")
    return Part(
        "report",
        "nmtkit report",
        text=f"Scored runs in {report.runs_dir}: {len(report.runs):,}. Rows measured with nmtkit "
        "link to their run, with its recipe, the hashes of the data, the versions of the code and "
        "of libraries, and the command that repeats it.",
        notes=[f"Written {report.written} by nmtkit report, {', '.join(versions)}."],
        parts=parts,
    )


# Own runs


def _runs_part(report: Report) -> Part:
    """Return the table of all runs, with the curves of those that no study shows."""
    study_ids = set()
    for study in report.studies:
        for study_run in study.runs():
            study_ids.add(study_run.scored)
    other_runs = []
    score_sets: list[dict[str, Any]] = []
    for run in report.runs:
        score_sets += run.scores.values()
        # The curves of a study are in its own part.
        if run.id not in study_ids:
            other_runs.append(run)
    # The provenance of every run has the methods of all kinds of scores.
    notes = score_methods(score_sets) if _has_paper_bleu(report) else score_signatures(score_sets)
    return Part(
        "runs",
        "Scored runs",
        text="" if report.runs else NO_RUNS,
        table=runs_grid(report) if report.runs else None,
        charts=dev_charts(other_runs),
        notes=[*notes, *dev_notes(other_runs)],
    )


def _has_paper_bleu(report: Report) -> bool:
    """Return whether a run has the paper's kinds of BLEU in its table."""
    return any(run.paper_bleu for run in report.runs)


def runs_grid(report: Report) -> Grid:
    """Return the scores of all runs, one test set per row."""
    kinds: set[str] = set()
    for run in report.runs:
        for scores in run.scores.values():
            kinds.update(scores)
    # Only scores that a run has get a column.
    names = shown_scores(kinds, all_kinds=_has_paper_bleu(report))
    rows = []
    for run in report.runs:
        n_parameters = "" if run.n_parameters is None else millions(run.n_parameters)
        time_flops, product_flops = cost_cells(run)
        for test_set, scores in run.scores.items():
            cells = [run_link(run), test_set]
            for name in names:
                cells.append(format_score(scores, name, with_interval=True))
            cells += [n_parameters, time_flops, product_flops]
            rows.append(tuple(cells))
    columns = ["run", "test set"]
    for name in names:
        columns.append(SCORE_NAMES[name])
    columns += ["parameters", f"FLOPs, {BY_TIME}", f"FLOPs, {COUNTED}"]
    grid = Grid.of("Scored runs", columns, rows, 2).filled()
    return replace(grid, data=runs_data(report))


def runs_data(report: Report) -> Grid:
    """Return the scores of all runs as data: a row for every score, with its method."""
    columns = (
        "run",
        *DATA_COLUMNS,
        "parameters",
        "steps",
        "flops_as_table_2",
        "flops_matrix_products",
        "command",
    )
    rows = []
    for run in report.runs:
        time_flops = run.cost.time_flops if run.cost else None
        product_flops = run.cost.product_flops if run.cost else None
        # Every row can be read by itself: the facts of a run are repeated for its scores.
        facts = (
            data_cell(run.n_parameters),
            data_cell(run.steps),
            data_cell(time_flops),
            data_cell(product_flops),
            run.command,
        )
        for scores in run.scores.values():
            for row in score_data(scores):
                rows.append((run.label, *row, *facts))
    return Grid.of("", columns, rows, len(columns))


# Evaluations on dev


def dev_charts(runs: Sequence[ScoredRun], prefix: str = "") -> list[Chart]:
    """Return the curves of dev figures.

    A chart compares only runs that were evaluated on the same text in the same way, and no more
    of them than there are colours.

    Args:
        prefix: Prefix of the names of files.
    """
    charts: list[Chart] = []
    for key in DEV_FIGURES:
        # The first chart of a figure has its name, the others a number.
        n_charts = 0
        for languages, curves in _comparable_curves(runs, key):
            for begin in range(0, len(curves), Chart.n_colours):
                n_charts += 1
                name = f"{prefix}{key.replace('_', '-')}"
                if n_charts > 1:
                    name += f"-{n_charts}"
                series = curves[begin : begin + Chart.n_colours]
                charts.append(_dev_chart(name, key, languages, series))
    return charts


def _dev_chart(name: str, key: str, languages: str, series: Sequence[Series]) -> Chart:
    """Return one chart of curves.

    Args:
        name: Stem of the name of its file.
        key: The figure, a key of DEV_FIGURES.
        languages: The language pair, such as en-de.
    """
    title = f"{DEV_FIGURES[key]} of dev, {languages}"
    if len(series) == 1:
        title += f" ({series[0].name})"  # a chart with one curve has no legend
    # Perplexity falls by orders of magnitude; scores have a scale from 0 to 100.
    is_log = key == "dev_perplexity"
    return Chart(name, title, series, x=Axis("steps", low=0), y=Axis(is_log=is_log))


def _comparable_curves(runs: Sequence[ScoredRun], key: str) -> list[tuple[str, list[Series]]]:
    """Group the curves of runs that were evaluated on the same text in the same way.

    Args:
        key: The figure, a key of DEV_FIGURES.

    Returns:
        The language pairs and curves of the groups. Runs with the same points, such as those
        that share a training, share a curve.
    """
    groups: dict[tuple[str, str, str], dict[tuple[Point, ...], list[str]]] = {}
    for run in runs:
        points: list[Point] = []
        for line in run.dev:
            value = line.get(key)
            if value is not None:
                points.append((line["step"], value))
        if not points:
            continue
        # Two evaluations are comparable if language pair, prepared corpus and method agree.
        languages = "-".join(run.languages)
        corpus = ""
        for stage in run.stages:
            if stage["stage"] == "prepare":
                corpus = stage["fingerprint"]
        method = str(run.dev[-1].get(f"{key}_how"))
        labels_by_points = groups.setdefault((languages, corpus, method), {})
        labels_by_points.setdefault(tuple(points), []).append(_legend_label(run, runs))
    curves = []
    for (languages, _, _), labels_by_points in groups.items():
        names = short_labels(list(labels_by_points.values()))
        series = []
        for name, run_points in zip(names, labels_by_points, strict=True):
            series.append(Series(name, run_points, "line and dots"))
        curves.append((languages, series))
    return curves


def _legend_label(run: ScoredRun, runs: Sequence[ScoredRun]) -> str:
    """Return the label of the curve of a run among others.

    A run of a recipe as it is gets the recipe's values of the keys that other runs override: next
    to "dropout=0.1", its curve is "dropout=0.0". Overrides of stages after the training change no
    curve, and are left out.
    """
    changes = run.changes()
    if run.label != run_label(run.name, changes):  # the row of a study
        return run.label
    if training_changes := _training_changes(changes):
        return run_label(run.name, training_changes)
    own_values = {}
    for stage in run.stages:
        for section, values in stage.get("recipe", {}).items():
            for key, value in values.items():
                own_values[f"{section}.{key}"] = toml_value(value)
    words = {}
    for other in runs:
        if other.name == run.name:
            for key in _training_changes(other.changes()):
                if key in own_values:
                    words[key] = own_values[key]
    return run_label(run.name, words)


def _training_changes(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the overridden values that a training depends on, by their keys."""
    later_sections = {*STAGES["average"], *STAGES["translate"], *STAGES["score"]}
    return {key: value for key, value in changes.items() if key.split(".")[0] not in later_sections}


def dev_notes(runs: Sequence[ScoredRun]) -> list[str]:
    """Return the methods of computing the dev scores of runs."""
    notes = []
    for run in runs:
        for line in run.dev:
            for key, name in DEV_FIGURES.items():
                method = line.get(f"{key}_how")
                if method:
                    notes.append(f"{name} of dev: {method}")
    return list(dict.fromkeys(notes))


# Studies


def _study_part(report: Report, number: int) -> Part:
    """Return the part of a study: its table, charts and notes.

    Args:
        number: Index of the study. The same study may occur twice, with other overrides.
    """
    study = report.studies[number]
    # Ids of a page are unique.
    earlier_names = [earlier.name for earlier in report.studies[:number]]
    key = f"study-{study.name}"
    if study.name in earlier_names:
        key += f"-{earlier_names.count(study.name) + 1}"

    # In the part of a study, its runs are labelled with their rows only.
    names = {run.scored: run.name for run in study.runs()}
    runs = []
    for run in report.runs:
        if run.id in names:
            runs.append(replace(run, label=names[run.id]))
    not_run = []
    begun = []
    for row in study.rows:
        if row.state == "not run":
            not_run.append(row)
        else:
            begun.append(row)
    charts = []
    chart = study_chart(study, key)
    if chart is not None:
        charts.append(chart)
    charts += dev_charts(runs, f"{key}-")
    # Rows that did not run would hide the few that did: they are folded.
    parts = []
    if begun and not_run:
        grid = study_grid(study, not_run)
        title = "Rows that were not run"
        parts.append(Part(f"{key}-not-run", title, table=grid, is_folded=True))
    return Part(
        key,
        study.name,
        text=study.description,
        table=_linked_study_grid(study, begun or not_run, runs),
        charts=charts,
        notes=study_notes(study) + dev_notes(runs),
        parts=parts,
        is_folded=not begun,
    )


def _linked_study_grid(
    study: StudyTable, rows: Sequence[StudyRow], runs: Sequence[ScoredRun]
) -> Grid:
    """Return the table of a study whose row names are links.

    A row links to its run, or to the table of all runs if it ran with several seeds.

    Args:
        runs: The runs of the study, labelled by row.
    """
    links = {run.label: run_link(run) for run in runs}
    for row in rows:
        if len(row.runs) > 1 and row.state != "not run":
            links[row.name] = Link(row.name, "runs")
    grid = study_grid(study, rows)
    groups = []
    for group in grid.groups:
        linked_group = []
        for row_name, *cells in group:
            linked_group.append((links.get(row_name, row_name), *cells))
        groups.append(linked_group)
    return replace(grid, groups=groups)


# Published tables, own runs first


def _published_part(
    key: str, title: str, grid: Grid, charts: Sequence[Chart] = (), notes: Sequence[str] = ()
) -> Part:
    """Return a published table, folded unless it has a row of ours.

    Args:
        grid: The table; cells of own runs are links.
        charts: Charts below the table.
        notes: Notes below the charts.
    """
    has_own_row = False
    for group in grid.groups:
        for row in group:
            for cell in row:
                if isinstance(cell, Link):
                    has_own_row = True
    return Part(key, title, table=grid, charts=charts, notes=notes, is_folded=not has_own_row)


# Provenance


def _provenance_part(run: ScoredRun) -> Part:
    """Return the commands that repeat and verify a run, its test sets, and its artifacts."""
    key = run_link(run).target
    # `verify` follows the last stage to all others.
    verify = shlex.join(["nmtkit", "verify", run.stages[-1]["path"]])
    notes = score_methods(run.scores.values())
    for name, scores in run.scores.items():
        test_set = scores["test_set"]
        notes.append(
            f"{name}: {test_set['lines']:,} lines, sha256 of the reference {test_set['sha256']}"
        )
        unscored = unscored_sentences(scores)
        if unscored:
            notes.append(f"{name}: {unscored}")
    parts = []
    for stage in run.stages:
        name = stage["stage"]
        parts.append(Part(f"{key}-{name}", name, code=as_json(stage)))
    return Part(
        key,
        f"{run.label} ({run.id})",
        text=run.description,
        code=f"{run.command}\n{verify}",
        notes=notes,
        parts=parts,
        is_folded=True,
    )
