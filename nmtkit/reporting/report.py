"""What a report tells: own runs first, then what is published, counted alike, beside them."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nmtkit.reporting import scores
from nmtkit.reporting.chart import Axis, Chart, Point, Series
from nmtkit.reporting.curves import DEV_SCORES
from nmtkit.reporting.document import Part
from nmtkit.reporting.grid import Grid, Link, Row
from nmtkit.reporting.show import as_json
from nmtkit.reporting.study_table import StudyTable, study_chart, study_grid, study_notes
from nmtkit.reporting.training_cost import BY_TIME, COUNTED, TrainingCost

FORMAT = 5  # of report.json; README.md describes it
TABLE_2_SET = "newstest2014"
OF_DEV = {**DEV_SCORES, "dev_perplexity": "perplexity per subword"}


@dataclass(frozen=True)
class RunFacts:
    id: str  # the fingerprint of its scores
    label: str  # the study and its row, or the recipe and what not all of its runs override
    command: str
    name: str
    description: str
    languages: tuple[str, str]
    scores: dict[str, Any]
    stages: list[dict[str, Any]]  # the artifacts that it rests on; README.md lists the keys
    n_parameters: int | None = None
    steps: int | None = None
    cost: TrainingCost | None = None
    dev: list[dict[str, Any]] = field(default_factory=list)  # evaluations during training


@dataclass(frozen=True)
class Report:
    written: str
    made_by: dict[str, str]
    runs_dir: str
    runs: list[RunFacts]
    studies: list[StudyTable]

    def as_json(self) -> dict[str, Any]:
        """Return what report.json contains, but for the names of the files beside it."""
        return {"format": FORMAT, **asdict(self), **scores.TABLES}


def document(report: Report) -> Part:
    of_paper = table_2(report)
    results = [
        *(_study_part(report, number) for number in range(len(report.studies))),
        _published_part("table-2", "Table 2", of_paper, [_cost_chart(of_paper)], scores.NOTES),
        _published_part("reproductions", "Reproductions", reproductions_grid(report)),
        _published_part("table-4", "Table 4", table_4(report)),
    ]
    folded = Part(
        "published",
        "Published, and not run here",
        text="Nothing of ours is beside these tables yet. `nmtkit run wmt14-en-de-base`, `nmtkit "
        "study table-3` and the other recipes that `nmtkit recipes` lists fill them.",
        parts=[each for each in results if each.is_folded],
    )
    rests_on = Part("rests-on", "What the runs rest on", parts=[*map(_run_part, report.runs)])
    made_by = ", ".join(f"{name} {version}" for name, version in report.made_by.items())
    return Part(
        "report",
        "nmtkit report",
        text=f"Scored runs in {report.runs_dir}: {len(report.runs):,}. A row of ours leads to its "
        "run, and there to the recipe, the hashes, the code and the library versions that made "
        "it, and to the command that makes it again.",
        notes=[f"Written {report.written} by nmtkit report, {made_by}."],
        parts=[
            _runs_part(report),
            *(each for each in results if not each.is_folded),
            *([folded] if folded.parts else []),
            *([rests_on] if report.runs else []),
        ],
    )


# Own runs


def _runs_part(report: Report) -> Part:
    of_studies = {run.scored for study in report.studies for run in study.runs()}
    others = [run for run in report.runs if run.id not in of_studies]
    of_sets = (each for run in report.runs for each in run.scores.values())
    return Part(
        "runs",
        "Runs",
        text="" if report.runs else "No run is scored yet: nmtkit run RECIPE",
        table=runs_grid(report) if report.runs else None,
        charts=_charts(others),
        notes=[*scores.hows(of_sets), *_dev_notes(others)],
    )


def runs_grid(report: Report) -> Grid:
    sets = [(run, *each) for run in report.runs for each in run.scores.items()]
    known = {kind for *_, scored in sets for kind in scored}
    kinds = [kind for kind in scores.SCORE_NAMES if scores.kind_of(kind) in known]
    rows = [
        (
            _link(run),
            name,
            *(scores.shown(scored, kind) for kind in kinds),
            "" if run.n_parameters is None else f"{run.n_parameters / 1e6:.2f}",
            *_costs(run),
        )
        for run, name, scored in sets
    ]
    names = (scores.SCORE_NAMES[kind] for kind in kinds)
    columns = ("run", "test set", *names, "params, 10^6", f"FLOPs, {BY_TIME}", f"FLOPs, {COUNTED}")
    return Grid.of("all scored runs", columns, rows, 2).filled()


def _link(run: RunFacts, before: str = "") -> Link:
    return Link(before + run.label, f"run-{run.id}")


def _costs(run: RunFacts) -> tuple[str, str]:
    return (_flops(run.cost.time_flops), _flops(run.cost.product_flops)) if run.cost else ("", "")


def _charts(runs: Sequence[RunFacts], prefix: str = "") -> list[Chart]:
    """Return evaluations during training, a line a run; a chart has what is counted alike."""
    found: list[Chart] = []
    for key, name in OF_DEV.items():
        alike: dict[tuple[str, ...], dict[tuple[Point, ...], list[str]]] = {}
        for run in runs:
            points = tuple((each["step"], each[key]) for each in run.dev if each.get(key))
            if points:
                text = [each["fingerprint"] for each in run.stages if each["stage"] == "prepare"]
                how = "-".join(run.languages), *text, str(run.dev[-1].get(f"{key}_how"))
                alike.setdefault(how, {}).setdefault(points, []).append(run.label)
        parts = [
            (langs, [*lines.items()][begin : begin + Chart.n_colours])
            for (langs, *_), lines in alike.items()
            for begin in range(0, len(lines), Chart.n_colours)
        ]
        for number, (langs, part) in enumerate(parts, 1):
            file = f"{prefix}{key.replace('_', '-')}" + (f"-{number}" if number > 1 else "")
            series = [Series(" = ".join(of), points, "line and dots") for points, of in part]
            axes = Axis("steps", low=0), Axis(is_log=key == "dev_perplexity")
            lone = f" ({series[0].name})" if len(series) == 1 else ""  # without a legend
            found.append(Chart(file, f"{name} of dev, {langs}{lone}", series, *axes))
    return found


def _dev_notes(runs: Sequence[RunFacts]) -> list[str]:
    of_dev = [each for run in runs for each in run.dev]
    hows = dict.fromkeys((key, each.get(f"{key}_how")) for each in of_dev for key in OF_DEV)
    return [f"{OF_DEV[key]} of dev: {how}" for key, how in hows if how]


def _study_part(report: Report, number: int) -> Part:
    study = report.studies[number]
    n_before = sum(each.name == study.name for each in report.studies[:number])
    key = f"study-{study.name}" + (f"-{n_before + 1}" if n_before else "")
    names = {run.scored: run.name for run in study.runs()}
    runs = [replace(run, label=names[run.id]) for run in report.runs if run.id in names]
    begun = [row for row in study.rows if row.state != "not run"]
    rest = [row for row in study.rows if row.state == "not run"]
    links = {run.label: _link(run) for run in runs}
    links |= {row.name: Link(row.name, "runs") for row in begun if len(row.runs) > 1}
    grid, chart = study_grid(study, begun or rest), study_chart(study, key)
    groups = [[(links.get(name, name), *cells) for name, *cells in group] for group in grid.groups]
    not_run = Part(
        f"{key}-not-run", "Rows that were not run", table=study_grid(study, rest), is_folded=True
    )
    return Part(
        key,
        study.name,
        text=study.description,
        table=replace(grid, groups=groups),
        charts=[*([chart] if chart else []), *_charts(runs, f"{key}-")],
        notes=[*study_notes(study), *_dev_notes(runs)],
        parts=[not_run] if begun and rest else [],
        is_folded=not begun,
    )


# What is published, own runs first


def _published_part(
    key: str, title: str, grid: Grid, charts: Sequence[Chart] = (), notes: Sequence[str] = ()
) -> Part:
    is_ours = any(isinstance(cell, Link) for rows in grid.groups for row in rows for cell in row)
    return Part(key, title, table=grid, charts=charts, notes=notes, is_folded=not is_ours)


def _beside(ours: Sequence[Row], name: str, n_labels: int) -> Grid:
    """Return a published table below rows of ours."""
    rows = [*ours, *map(tuple, scores.TABLES[name]["rows"])]
    return Grid.of(scores.TABLES[name]["title"], scores.TABLES[name]["columns"], rows, n_labels)


def table_2(report: Report) -> Grid:
    """Return Table 2: runs on newstest2014, the literature and the paper."""
    rows: list[Row] = []
    for run in filter(_is_of_table_2, report.runs):
        score = scores.shown(run.scores[TABLE_2_SET], scores.TABLE_2_KINDS[run.languages[1]])
        cost, counted = _costs(run)
        pairs = [(text, "") if run.languages[1] == "de" else ("", text) for text in (score, cost)]
        rows.append((_link(run, "nmtkit: "), *pairs[0], *pairs[1], counted))
    return _beside(rows, "table_2", 1)


def _is_of_table_2(run: RunFacts) -> bool:
    src, tgt = run.languages
    kind = scores.kind_of(scores.TABLE_2_KINDS.get(tgt, ""))
    scoring = (stage.get("recipe", {}).get("scoring", {}) for stage in run.stages)
    lowercase = any(each.get("lowercase") for each in scoring)
    return src == "en" and kind in run.scores.get(TABLE_2_SET, {}) and not lowercase


def _cost_chart(grid: Grid) -> Chart:
    known: dict[str, list[Point]] = {}  # by system
    for ((name, bleu, _, flops, *_),) in grid.groups:
        if flops and bleu not in ("", scores.NOT_AVAILABLE):
            system = "nmtkit" if isinstance(name, Link) else name
            known.setdefault(system, []).append((float(flops), float(bleu)))
    series = [Series(system, points, "dots") for system, points in known.items()]
    axis = Axis("FLOPs as Table 2 counts them", is_log=True)
    title = "BLEU by training cost, English-German (ours: quotes replaced)"
    return Chart("cost", title, series, axis, width=560, plot=260)


def reproductions_grid(report: Report) -> Grid:
    """Return figures of runs and published ones, only ones that are counted alike in a group."""
    table = scores.TABLES["reproductions"]
    runs = [run for run in report.runs if _is_of_table_2(run) and run.languages[1] == "de"]
    groups: list[list[Row]] = []
    for group in table["groups"]:
        rows: list[Row] = []
        for run in runs if "ours" in group else []:
            scored = run.scores[TABLE_2_SET]
            lines = f"{scored['test_set']['lines']:,}"
            rows.append((_link(run, "nmtkit: "), "", lines, scores.shown(scored, group["ours"])))
        groups.append([(group["counted"], *row) for row in (*rows, *group["rows"])])
    return Grid(table["title"], tuple(table["columns"]), 3, groups)


def table_4(report: Report) -> Grid:
    """Return Table 4: runs that parse, the literature and the paper."""
    rows = [
        (_link(run, "nmtkit: "), name, scores.shown(scored, "bracket_f1"))
        for run in report.runs
        for name, scored in run.scores.items()
        if "bracket_f1" in scored
    ]
    return _beside(rows, "table_4", 2)


# What a run rests on


def _run_part(run: RunFacts) -> Part:
    key = _link(run).target
    verify = shlex.join(["nmtkit", "verify", run.stages[-1]["path"]])
    sets = (
        f"{name}: {scored['test_set']['lines']:,} lines, sha256 of the reference "
        f"{scored['test_set']['sha256']}"
        for name, scored in run.scores.items()
    )
    return Part(
        key,
        f"{run.label} ({run.id})",
        text=run.description,
        code=f"{run.command}\n{verify}",
        notes=[*scores.hows(run.scores.values()), *sets],
        parts=[
            Part(f"{key}-{each['stage']}", each["stage"], code=as_json(each)) for each in run.stages
        ],
        is_folded=True,
    )


def _flops(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e+", "e")
