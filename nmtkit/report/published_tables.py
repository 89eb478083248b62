"""Published tables with comparable runs of our own above the published rows."""

from collections.abc import Sequence
from dataclasses import replace

from nmtkit.evaluation.scores import NOT_AVAILABLE, TABLE_2_SCORES, format_score, score_kind
from nmtkit.rendering.chart import Axis, Chart, Point, Series
from nmtkit.rendering.grid import Grid, Link, Row, data_cell, scientific
from nmtkit.report.collection import ScoredRun
from nmtkit.report.results import TABLES

TABLE_2_SET = "newstest2014"
TABLE_4_SET = "wsj-23"  # as the recipes name section 23


def run_link(run: ScoredRun, prefix: str = "") -> Link:
    """Return a cell with the label of a run, behind `prefix`, that links to its provenance."""
    return Link(prefix + run.label, f"run-{run.id}")


def cost_cells(run: ScoredRun) -> tuple[str, str]:
    """Return the cost of a training as Table 2 counts it, and its matrix products."""
    if run.cost is None:
        return "", ""
    return _flops(run.cost.time_flops), _flops(run.cost.product_flops)


def _flops(value: float | None) -> str:
    """Return a number of operations as Table 2 prints it, such as 3.3 × 10¹⁸."""
    return "" if value is None else scientific(value)


def table_2_grid(runs: Sequence[ScoredRun]) -> Grid:
    """Return Table 2: runs on newstest2014, the literature and the paper; its data for CSV."""
    rows: list[Row] = []
    for run in runs:
        if not _is_in_table_2(run):
            continue
        _, tgt = run.languages
        score = format_score(run.scores[TABLE_2_SET], TABLE_2_SCORES[tgt])
        time_flops = product_flops = ""
        if run.cost is not None:
            time_flops = data_cell(run.cost.time_flops)
            product_flops = data_cell(run.cost.product_flops)
        link = run_link(run, "nmtkit: ")
        # The columns: BLEU en-de, BLEU en-fr, cost en-de, cost en-fr, matrix products.
        if tgt == "de":
            rows.append((link, score, "", time_flops, "", product_flops))
        else:
            rows.append((link, "", score, "", time_flops, product_flops))
    data = _published_grid(rows, "table_2", 1)
    # Published costs are written as 3.3e18, too; a spreadsheet reads that.
    groups = []
    for ((model, german, french, *costs),) in data.groups:
        groups.append([(model, german, french, *map(_power_of_ten, costs))])
    return replace(data, groups=groups, data=data)


def _power_of_ten(cost: str) -> str:
    """Return a cell of a cost as people write it; an empty one stays empty."""
    return scientific(float(cost)) if cost else ""


def _is_in_table_2(run: ScoredRun) -> bool:
    """Return whether a run is comparable with Table 2: its direction, test set, kind of BLEU."""
    # A score counts only next to scores of the same test set and the same kind.
    src, tgt = run.languages
    if src != "en" or tgt not in TABLE_2_SCORES:
        return False
    if score_kind(TABLE_2_SCORES[tgt]) not in run.scores.get(TABLE_2_SET, {}):
        return False
    for stage in run.stages:
        if stage.get("recipe", {}).get("scoring", {}).get("lowercase"):
            return False
    return True


def cost_chart(table_2: Grid) -> Chart:
    """Return the English-German BLEU of Table 2 by training cost."""
    points: dict[str, list[Point]] = {}  # by system
    assert table_2.data is not None
    # Own runs share a series; systems of the literature have their own.
    for group in table_2.data.groups:
        for name, bleu, _, cost, _, _ in group:
            if cost and bleu not in ("", NOT_AVAILABLE):
                system = "nmtkit" if isinstance(name, Link) else name
                points.setdefault(system, []).append((float(cost), float(bleu)))
    series = []
    for system, system_points in points.items():
        series.append(Series(system, system_points, "dots"))
    return Chart(
        "cost",
        "BLEU by training cost, English-German (ours: quotes replaced)",
        series,
        x=Axis("FLOPs as Table 2 counts them", is_log=True),
        y=Axis("BLEU"),
        width=560,
        plot=260,
    )


def reproductions_grid(runs: Sequence[ScoredRun]) -> Grid:
    """Return BLEU of own runs and of others' reproductions, grouped by kind of BLEU."""
    table = TABLES["reproductions"]
    comparable = []
    for run in runs:
        if _is_in_table_2(run) and run.languages[1] == "de":
            comparable.append(run)
    groups: list[list[Row]] = []
    for group in table["groups"]:
        counted = group["counted"]
        rows: list[Row] = []
        if "ours" in group:
            for run in comparable:
                scores = run.scores[TABLE_2_SET]
                n_lines = f"{scores['test_set']['lines']:,}"
                score = format_score(scores, group["ours"])
                rows.append((counted, run_link(run, "nmtkit: "), "", n_lines, score))
        for row in group["rows"]:
            rows.append((counted, *row))
        groups.append(rows)
    return Grid(table["title"], tuple(table["columns"]), 3, groups)


def table_4_grid(runs: Sequence[ScoredRun]) -> Grid:
    """Return Table 4: runs that parse, the literature and the paper."""
    rows: list[Row] = []
    for run in runs:
        # F1 of other trees, such as those of a sample, is not comparable.
        scores = run.scores.get(TABLE_4_SET, {})
        if "bracket_f1" in scores:
            score = format_score(scores, "bracket_f1")
            rows.append((run_link(run, "nmtkit: "), TABLE_4_SET, score))
    return _published_grid(rows, "table_4", 2)


def _published_grid(own_rows: Sequence[Row], name: str, n_labels: int) -> Grid:
    """Return own rows above a published table.

    Args:
        name: Name of the table in `published.toml`.
        n_labels: Number of columns that hold text.
    """
    table = TABLES[name]
    rows = list(own_rows)
    rows += map(tuple, table["rows"])
    return Grid.of(table["title"], table["columns"], rows, n_labels)
