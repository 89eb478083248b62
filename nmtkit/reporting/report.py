"""What a report tells: own runs first, then what is published, counted alike, beside them."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nmtkit.duration import duration
from nmtkit.reporting.chart import N_COLOURS, Axis, Chart, Point, Series
from nmtkit.reporting.code import OtherCode, code_note
from nmtkit.reporting.cost import BY_TIME, COUNTED, TrainingCost
from nmtkit.reporting.document import Part
from nmtkit.reporting.grid import Grid, Link, Row
from nmtkit.reporting.published import (
    LANGUAGES,
    NOTES,
    OURS,
    REPRODUCTIONS,
    TABLE_2,
    TABLE_2_KINDS,
    TABLE_4,
)
from nmtkit.reporting.scores import SCORE_NAMES, figure, how_counted, kind_of, shown
from nmtkit.reporting.study import (
    NOT_VERIFIED,
    StudyTable,
    cost_grid,
    study_chart,
    study_grid,
    study_notes,
)

FORMAT = 2  # of report.json; README.md describes it
TABLE_2_SET = "newstest2014"
OF_PAPER = (  # the recipes of Table 2 and of Table 4
    *("wmt14-en-de-base", "wmt14-en-de-big", "wmt14-en-fr-base", "wmt14-en-fr-big"),
    *("wsj-parsing", "wsj-parsing-semi"),
)
OF_DEV = {
    "dev_sacrebleu": "sacreBLEU",
    "dev_bracket_f1": "bracket F1",
    "dev_perplexity": "perplexity per subword",
}


@dataclass(frozen=True)
class StageFacts:
    """An artifact that a result rests on, as its manifest and measurements record it."""

    stage: str
    fingerprint: str
    path: str
    is_here: bool  # or else it was freed or moved, and the rest is empty
    manifest_sha256: str | None = None
    published: str | None = None
    seconds: float | None = None
    host: str | None = None
    run: dict[str, Any] = field(default_factory=dict)  # recipe, its hash, overrides, commit
    made_by: dict[str, str] = field(default_factory=dict)  # libraries, precision
    code: dict[str, str] = field(default_factory=dict)  # hashes of rooms of nmtkit
    recipe: dict[str, Any] = field(default_factory=dict)  # sections
    texts: dict[str, Any] = field(default_factory=dict)  # hashes of what was read


@dataclass(frozen=True)
class RunFacts:
    """A scored run."""

    id: str  # the fingerprint of its scores
    label: str  # the study and its row, or the recipe and what not all of its runs override
    command: str
    name: str
    description: str
    languages: tuple[str, str]
    scores: dict[str, Any]
    stages: list[StageFacts]
    by_length: dict[str, list[dict[str, Any]]]  # of each test set, sacreBLEU by source length
    other_code: OtherCode  # that made the scores
    n_parameters: int | None = None
    steps: int | None = None
    cost: TrainingCost | None = None
    dev: list[dict[str, Any]] = field(default_factory=list)  # evaluations during training


@dataclass(frozen=True)
class Report:
    """All runs and studies."""

    written: str
    made_by: dict[str, str]
    runs_dir: str
    runs: list[RunFacts]
    studies: list[StudyTable]

    def as_json(self) -> dict[str, Any]:
        """Return what report.json contains."""
        return {
            "format": FORMAT,
            **asdict(self),
            "table_2": [asdict(row) for row in TABLE_2],
            "table_4": [asdict(row) for row in TABLE_4],
            "reproductions": [asdict(row) for row in REPRODUCTIONS],
        }


def document(report: Report) -> Part:
    """Return the whole report."""
    results = [
        *(_study_part(report, number) for number in range(len(report.studies))),
        _published_part("table-2", "Table 2", table_2(report), [*_cost_charts(report)], NOTES),
        _published_part("reproductions", "Reproductions", reproductions_grid(report)),
        _published_part("table-4", "Table 4", table_4(report)),
    ]
    names = {run.name for run in report.runs}
    commands = [f"nmtkit run {recipe}" for recipe in OF_PAPER if recipe not in names]
    commands += [
        f"nmtkit study {study.name}"
        for study in report.studies
        if not any(row.scored for row in study.rows)
    ]
    folded = Part(
        "published",
        "Published, and not run here",
        text="Nothing of ours is beside these tables yet. To run a recipe or a study:",
        code="\n".join(commands),
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
    of_studies = {row.scored for study in report.studies for row in study.rows}
    others = [run for run in report.runs if run.id not in of_studies]
    hows = dict.fromkeys(how for run in report.runs for how in _hows(run))
    return Part(
        "runs",
        "Runs",
        text="" if report.runs else "No run is scored yet: nmtkit run RECIPE",
        tables={"runs": runs_grid(report)} if report.runs else {},
        charts=_charts(others),
        notes=[*hows, *_dev_notes(others)],
    )


def runs_grid(report: Report) -> Grid:
    """Return each run on each of its test sets, every kind of score named."""
    sets = [(run, *each) for run in report.runs for each in run.scores.items()]
    kinds = [kind for kind in SCORE_NAMES if any(kind_of(kind) in scores for *_, scores in sets)]
    rows = [
        (
            _link(run),
            name,
            *(shown(scores, kind) for kind in kinds),
            "" if run.n_parameters is None else f"{run.n_parameters / 1e6:.2f}",
            *_costs(run),
        )
        for run, name, scores in sets
    ]
    names = (SCORE_NAMES[kind] for kind in kinds)
    columns = ("run", "test set", *names, "params, 10^6", f"FLOPs, {BY_TIME}", f"FLOPs, {COUNTED}")
    return Grid.of("all scored runs", columns, rows, 2).filled()


def _link(run: RunFacts, before: str = "") -> Link:
    return Link(before + run.label, f"run-{run.id}")


def _costs(run: RunFacts) -> tuple[str, str]:
    """Return the FLOPs of a training, as Table 2 counts them and of its matrix products."""
    return (_flops(run.cost.time_flops), _flops(run.cost.product_flops)) if run.cost else ("", "")


def _charts(runs: Sequence[RunFacts], prefix: str = "") -> list[Chart]:
    """Return what several runs have in common, a line a run; never more lines than colours."""
    alike: dict[tuple[str, ...], dict[tuple[Point, ...], list[str]]] = {}
    for run in runs:
        for kind, points in _lines(run):
            alike.setdefault(kind, {}).setdefault(points, []).append(run.label)
    found: list[Chart] = []
    for (key, title, over, *_), lines in alike.items():
        series = [Series(" = ".join(names), each, "line and dots") for each, names in lines.items()]
        for begin in range(0, len(series), N_COLOURS):
            number = sum(chart.title == title for chart in found) + 1
            name = f"{prefix}{key}" + (f"-{number}" if number > 1 else "")
            axes = Axis(over, low=0), Axis(is_log=key == "dev-perplexity")
            found.append(Chart(name, title, series[begin : begin + N_COLOURS], *axes))
    return found


def _lines(run: RunFacts) -> Iterator[tuple[tuple[str, ...], tuple[Point, ...]]]:
    """Yield lines of a run, each after what is the same in all runs that are counted alike.

    That begins with the name of a file, the title and the horizontal axis.
    """
    prepared = next((each.fingerprint for each in run.stages if each.stage == "prepare"), "")
    langs = "-".join(run.languages)
    for key, name in OF_DEV.items():
        points = tuple((each["step"], each[key]) for each in run.dev if each.get(key) is not None)
        if points:
            how = str(run.dev[-1].get(f"{key}_how"))
            title = f"{name} of dev, {langs}, not verified"
            yield (key.replace("_", "-"), title, "steps", prepared, how), points
    for name, groups in run.by_length.items():
        points = tuple((round(group["mean_words"]), group["sacrebleu"]) for group in groups)
        if len(points) > 1:
            scores = run.scores[name]
            alike = scores["test_set"]["sha256"], how_counted(scores["sacrebleu"])
            title = f"sacreBLEU of {name}, {langs}, by length"
            yield ("length", title, "words of the source", *alike), points


def _dev_notes(runs: Sequence[RunFacts]) -> list[str]:
    """Return how the scores that charts show of dev were counted."""
    hows = dict.fromkeys(each.get("dev_sacrebleu_how") for run in runs for each in run.dev)
    notes = [f"sacreBLEU of dev: {how}" for how in hows if how]
    return [*notes, f"figures of dev: {NOT_VERIFIED}"] if any(run.dev for run in runs) else []


def _study_part(report: Report, number: int) -> Part:
    study = report.studies[number]
    n_before = sum(each.name == study.name for each in report.studies[:number])
    key = f"study-{study.name}" + (f"-{n_before + 1}" if n_before else "")
    rows = {row.scored: row.name for row in study.rows}
    runs = [replace(run, label=rows[run.id]) for run in report.runs if run.id in rows]
    links = {run.label: _link(run) for run in runs}
    begun = [each for each in study.variants if each.state != "not run"]
    rest = [each for each in study.variants if each.state == "not run"]
    grid, costs, chart = study_grid(study, begun or rest), cost_grid(study), study_chart(study, key)
    groups = [[(links.get(name, name), *cells) for name, *cells in group] for group in grid.groups]
    not_run = Part(
        f"{key}-not-run",
        "Rows that were not run",
        tables={f"{key}-not-run": study_grid(study, rest)},
        is_folded=True,
    )
    return Part(
        key,
        study.name,
        text=study.description,
        tables={
            key: replace(grid, groups=groups),
            **({f"{key}-cost": costs} if costs.groups else {}),
        },
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
    return Part(key, title, tables={key: grid}, charts=charts, notes=notes, is_folded=not is_ours)


def table_2(report: Report) -> Grid:
    """Return Table 2: runs on newstest2014, the literature and the paper."""
    rows: list[Row] = []
    for run in filter(_is_of_table_2, report.runs):
        score = shown(run.scores[TABLE_2_SET], TABLE_2_KINDS[run.languages[1]])
        cost, counted = _costs(run)
        pairs = [(text, "") if run.languages[1] == "de" else ("", text) for text in (score, cost)]
        rows.append((_link(run, "nmtkit: "), *pairs[0], *pairs[1], counted))
    for row in TABLE_2:
        costs = _flops(row.en_de_flops), _flops(row.en_fr_flops)
        rows.append((row.model, _figure(row.en_de), _figure(row.en_fr), *costs, ""))
    columns = (
        "model",
        *(f"BLEU {each}" for each in LANGUAGES.values()),
        *(f"FLOPs {each}, {BY_TIME}" for each in ("English-German", "English-French")),
        f"FLOPs, {COUNTED}",
    )
    return Grid.of(f"test set {TABLE_2_SET}", columns, rows, 1)


def table_2_score(run: RunFacts) -> float | None:
    """Return the BLEU of a run that Table 2's is comparable with, if it has one."""
    if not _is_of_table_2(run):
        return None
    return figure(run.scores[TABLE_2_SET], TABLE_2_KINDS[run.languages[1]])


def _is_of_table_2(run: RunFacts) -> bool:
    """Return whether a run is scored on the test set of Table 2, in its case."""
    src, tgt = run.languages
    kind = kind_of(TABLE_2_KINDS.get(tgt, ""))
    lowercase = any(stage.recipe.get("scoring", {}).get("lowercase") for stage in run.stages)
    return src == "en" and kind in run.scores.get(TABLE_2_SET, {}) and not lowercase


def _cost_charts(report: Report) -> Iterator[Chart]:
    """Yield the cost of training against BLEU of Table 2, for each language."""
    for lang, name in LANGUAGES.items():
        systems = {
            "published": [
                (row.model, getattr(row, f"en_{lang}_flops"), getattr(row, f"en_{lang}"))
                for row in TABLE_2
            ],
            "nmtkit": [
                (run.label, run.cost.time_flops, table_2_score(run))
                for run in report.runs
                if run.languages[1] == lang and run.cost
            ],
        }
        series = []
        for whose, points in systems.items():
            known = [each for each in points if None not in each]
            places = [(flops, bleu) for _, flops, bleu in known]
            series.append(Series(whose, places, "dots", labels=[label for label, *_ in known]))
        axis = Axis("FLOPs as Table 2 counts them", is_log=True)
        title = f"BLEU by training cost, {name}"
        yield Chart(f"cost-{lang}", title, series, axis, width=560, plot=260)


def reproductions_grid(report: Report) -> Grid:
    """Return figures of runs and published ones, only ones that are counted alike in a group."""
    groups: list[list[Row]] = []
    runs = [run for run in report.runs if run.languages[1] == "de" and _is_of_table_2(run)]
    for counted, kind in OURS.items():
        rows: list[Row] = []
        for run in runs if kind is not None else []:
            scores = run.scores[TABLE_2_SET]
            lines = f"{scores['test_set']['lines']:,}"
            rows.append((counted, _link(run, "nmtkit: "), "", lines, shown(scores, str(kind))))
        for each in REPRODUCTIONS:
            if each.counted == counted:
                lines = f"{each.lines:,}" if each.lines else "not said"
                rows.append((counted, each.source, each.model, lines, each.bleu))
        groups.append(rows)
    columns = ("counted as", "system", "model", "lines", "BLEU")
    title = f"trained from scratch: BLEU on {TABLE_2_SET}, English-German"
    return Grid(title, columns, 3, groups)


def table_4(report: Report) -> Grid:
    """Return Table 4: runs that parse, the literature and the paper."""
    rows: list[Row] = [
        (_link(run, "nmtkit: "), name, f"{scores['bracket_f1']['score']:.2f}")
        for run in report.runs
        for name, scores in run.scores.items()
        if "bracket_f1" in scores
    ]
    rows += [(row.parser, row.training, f"{row.f1:.1f}") for row in TABLE_4]
    columns = ("parser", "training, or test set of a run", "F1")
    title = "English constituency parsing, section 23 of the Wall Street Journal"
    return Grid.of(title, columns, rows, 2)


# What a run rests on


def _run_part(run: RunFacts) -> Part:
    note = code_note(run.other_code)
    libraries: dict[str, list[str]] = {}
    for stage in run.stages:
        names = [f"{name} {version}" for name, version in stage.made_by.items() if name != "nmtkit"]
        libraries.setdefault(", ".join(names), []).append(stage.stage)
    lists = {
        "What it rests on": [
            *map(_made, run.stages),
            *([note] if note else []),
            *(f"{', '.join(stages)}: {names}" for names, stages in libraries.items() if names),
        ],
        "How its scores were counted": [
            *_hows(run),
            *(
                f"{name}: {scores['test_set']['lines']:,} lines, sha256 of the reference "
                f"{scores['test_set']['sha256']}"
                for name, scores in run.scores.items()
            ),
        ],
        "Texts and their hashes": [
            f"{key}: {' '.join(map(str, identity))}"
            for stage in run.stages
            for key, identities in stage.texts.items()
            for identity in identities
        ],
    }
    key = _link(run).target
    parts = [
        Part(f"{key}-{number}", title, notes=notes)
        for number, (title, notes) in enumerate(lists.items())
    ]
    return Part(
        key,
        run.label,
        text=run.description,
        code=f"{run.command}\n{shlex.join(['nmtkit', 'verify', run.stages[-1].path])}",
        parts=[*parts, Part(f"{key}-recipe", "Recipe", code=_recipe_of(run))],
        is_folded=True,
        aside=run.id,
    )


def _hows(run: RunFacts) -> dict[str, None]:
    """Return how each score of a run was counted, once."""
    return dict.fromkeys(
        f"{SCORE_NAMES.get(kind, kind)}: {how_counted(score)}"
        for scores in run.scores.values()
        for kind, score in scores.items()
        if isinstance(score, dict) and "how" in score
    )


def _made(stage: StageFacts) -> str:
    if not stage.is_here:
        return f"{stage.stage}: {stage.fingerprint}, not here any more"
    run = stage.run
    code = ", ".join(f"{room} {hashed}" for room, hashed in stage.code.items())
    commit = f", commit {run['commit'][:12]}" if run.get("commit") else ""
    changed = " with changes" if run.get("clean") is False else ""
    took = f", took {duration(stage.seconds)}" if stage.seconds is not None else ""
    return (
        f"{stage.stage}: {stage.fingerprint}; manifest sha256 "
        f"{stage.manifest_sha256 or 'not recorded'}; nmtkit {stage.made_by.get('nmtkit', '?')}"
        f"{commit}{changed}, code {code or 'not recorded'}; published {stage.published or '?'} on "
        f"{stage.host or '?'}{took}"
    )


def _recipe_of(run: RunFacts) -> str:
    """Return the values of the recipe that the artifacts depend on, and the hash of its file."""
    recipe = run.stages[-1].run
    lines = [f"# {recipe.get('recipe', '?')}, sha256 {recipe.get('sha256') or 'not recorded'}"]
    for stage in run.stages:
        for section, values in stage.recipe.items():
            lines += ["", f"[{section}]"]
            lines += [
                f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in values.items()
            ]
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _flops(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e+", "e")
