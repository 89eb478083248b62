"""What a report tells: own runs first, then what is published, counted alike, beside them."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from nmtkit.duration import duration
from nmtkit.reporting.chart import N_COLOURS, Axis, Chart, Point, Series
from nmtkit.reporting.code import OtherCode, code_note
from nmtkit.reporting.cost import BY_TIME, COUNTED
from nmtkit.reporting.devices import TrainingCost
from nmtkit.reporting.document import Part
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.link import Link
from nmtkit.reporting.published import (
    LANGUAGES,
    NOTES,
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
    n_parameters: int | None
    steps: int | None
    cost: TrainingCost | None
    dev: list[dict[str, Any]]  # evaluations during training
    by_length: dict[str, list[dict[str, Any]]]  # of each test set, sacreBLEU by source length
    other_code: OtherCode  # that made the scores

    @property
    def verify(self) -> str:
        """The command that hashes again all that it rests on."""
        return shlex.join(["nmtkit", "verify", self.stages[-1].path])

    @property
    def anchor(self) -> str:
        """The id of its part of the page."""
        return f"run-{self.id}"


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
        reproductions = [
            {"counted": counted, **asdict(each)}
            for counted, (_, published) in REPRODUCTIONS.items()
            for each in published
        ]
        return {
            "format": FORMAT,
            **asdict(self),
            "table_2": [asdict(row) for row in TABLE_2],
            "table_4": [asdict(row) for row in TABLE_4],
            "reproductions": reproductions,
        }


# What reproduces a row of Table 2 and of Table 4: a recipe and its language.
TABLE_2_RECIPES = {
    "wmt14-en-de-base": "de",
    "wmt14-en-de-big": "de",
    "wmt14-en-fr-base": "fr",
    "wmt14-en-fr-big": "fr",
}
TABLE_2_SET = "newstest2014"
TABLE_4_RECIPES = ("wsj-parsing", "wsj-parsing-semi")


def document(report: Report) -> Part:
    """Return the whole report."""
    results = [
        *(_study_part(report, study) for study in report.studies),
        *(_table_2_part(report), _reproductions_part(report), _table_4_part(report)),
    ]
    parts = [
        _runs_part(report),
        *(each for each in results if not each.is_folded),
        Part(
            "published",
            "Published, and not run here",
            text="Nothing of ours is beside these tables yet. To run a recipe or a study:",
            code="\n".join(_not_run(report)),
            parts=[each for each in results if each.is_folded],
        ),
        Part("rests-on", "What the runs rest on", parts=[*map(_run_part, report.runs)]),
    ]
    n = len(report.runs)
    return Part(
        "report",
        "nmtkit report",
        text=f"{n:,} scored run{'' if n == 1 else 's'} in {report.runs_dir}. A row of ours leads "
        "to its run, and there to the recipe, the hashes, the code and the library versions that "
        "made it, and to the command that makes it again.",
        parts=[part for part in parts if part.tables or part.parts or part.text],
    )


def footer(report: Report) -> str:
    """Return when and by what the report was written."""
    made_by = ", ".join(f"{name} {version}" for name, version in report.made_by.items())
    return f"Written {report.written} by nmtkit report: {made_by}."


def _not_run(report: Report) -> Iterator[str]:
    """Yield the command of each recipe of the paper, and of each study, that has no run."""
    names = {run.name for run in report.runs}
    for recipe in (*TABLE_2_RECIPES, *TABLE_4_RECIPES):
        if recipe not in names:
            yield f"nmtkit run {recipe}"
    for study in report.studies:
        if not any(row.scored for row in study.rows):
            yield f"nmtkit study {study.name}"


# Own runs


def _runs_part(report: Report) -> Part:
    of_studies = {row.scored for study in report.studies for row in study.rows}
    runs = [run for run in report.runs if run.id not in of_studies]
    return Part(
        "runs",
        "Runs",
        text="" if report.runs else "No run is scored yet: nmtkit run RECIPE",
        tables={"runs": runs_grid(report)} if report.runs else {},
        charts=_charts(runs),
        notes=[*dict.fromkeys(how for run in report.runs for how in _hows(run)), *_dev_notes(runs)],
    )


def runs_grid(report: Report) -> Grid:
    """Return each run on each of its test sets, every kind of score named."""
    rows: list[Row] = []
    sets = [of_set for run in report.runs for of_set in run.scores.values()]
    kinds = [name for name in SCORE_NAMES if any(kind_of(name) in of_set for of_set in sets)]
    for run in report.runs:
        for name, of_set in run.scores.items():
            cells = [shown(of_set, kind) for kind in kinds]
            cost = run.cost
            costs = (_flops(cost.time_flops), _flops(cost.product_flops)) if cost else ("", "")
            parameters = "" if run.n_parameters is None else f"{run.n_parameters / 1e6:.2f}"
            rows.append((Link(run.label, run.anchor), name, *cells, parameters, *costs))
    names = (SCORE_NAMES[kind] for kind in kinds)
    columns = ("run", "test set", *names, "params, 10^6", f"FLOPs, {BY_TIME}", f"FLOPs, {COUNTED}")
    return Grid.of("all scored runs", columns, rows, 2)


def _charts(runs: Sequence[RunFacts], prefix: str = "") -> list[Chart]:
    """Return what several runs have in common, a line a run; never more lines than colours."""
    lines: dict[tuple[str, ...], dict[str, tuple[Point, ...]]] = {}
    for run in runs:
        for kind, points in _lines(run):
            lines.setdefault(kind, {})[run.label] = points
    found: list[Chart] = []
    for (key, title, over, *_), of_runs in lines.items():
        together: dict[tuple[Point, ...], list[str]] = {}
        for label, points in of_runs.items():
            together.setdefault(points, []).append(label)  # such as of one training
        series = [
            Series(" = ".join(names), points, "line and dots") for points, names in together.items()
        ]
        for begin in range(0, len(series), N_COLOURS):
            number = sum(chart.title == title for chart in found)
            some = series[begin : begin + N_COLOURS]
            is_log = key == "dev-perplexity"
            key_of_file = f"{prefix}{key}" + (f"-{number + 1}" if number else "")
            found.append(Chart(key_of_file, title, some, Axis(over, low=0), Axis(is_log=is_log)))
    return found


def _lines(run: RunFacts) -> Iterator[tuple[tuple[str, ...], tuple[Point, ...]]]:
    """Yield lines of a run, each with what is the same in all runs that can be compared with it.

    That begins with the name of a file, the title and the horizontal axis.
    """
    prepared = next((each.fingerprint for each in run.stages if each.stage == "prepare"), "")
    langs = "-".join(run.languages)
    for key, name in (
        ("dev_sacrebleu", "sacreBLEU"),
        ("dev_bracket_f1", "bracket F1"),
        ("dev_perplexity", "perplexity per subword"),
    ):
        points = tuple((each["step"], each[key]) for each in run.dev if each.get(key) is not None)
        if points:
            how = str(run.dev[-1].get(f"{key}_how") or "")
            title = f"{name} of dev, {langs}, not verified"
            yield (key.replace("_", "-"), title, "steps", prepared, how), points
    for name, groups in run.by_length.items():
        points = tuple((round(group["mean_words"]), group["sacrebleu"]) for group in groups)
        if len(points) > 1:
            of_set = run.scores[name]
            counted = of_set["test_set"]["sha256"], how_counted(of_set["sacrebleu"])
            title = f"sacreBLEU of {name}, {langs}, by length"
            yield ("length", title, "words of the source", *counted), points


def _dev_notes(runs: Sequence[RunFacts]) -> list[str]:
    """Return how the scores that charts show of dev were counted."""
    hows = dict.fromkeys(each.get("dev_sacrebleu_how") for run in runs for each in run.dev)
    notes = [f"sacreBLEU of dev: {how}" for how in hows if how]
    return [*notes, f"figures of dev: {NOT_VERIFIED}"] if any(run.dev for run in runs) else []


def _study_part(report: Report, study: StudyTable) -> Part:
    anchors = {run.id: run.anchor for run in report.runs}
    links = {
        row.name: Link(row.name, anchors[row.scored]) for row in study.rows if row.scored in anchors
    }
    names = {row.scored: row.name for row in study.rows}
    runs = [replace(run, label=names[run.id]) for run in report.runs if run.id in names]
    begun = [each for each in study.variants if each.state != "not run"]
    rest = [each for each in study.variants if each.state == "not run"]
    costs, chart = cost_grid(study), study_chart(study)
    not_run = Part(
        f"{study.name}-not-run",
        "Rows that were not run",
        tables={f"{study.name}-not-run": study_grid(study, rest)},
        is_folded=True,
    )
    return Part(
        study.name,
        study.name,
        text=study.description,
        tables={
            study.name: _linked(study_grid(study, begun or rest), links),
            **({f"{study.name}-cost": costs} if costs.groups else {}),
        },
        charts=[*([chart] if chart else []), *_charts(runs, f"{study.name}-")],
        notes=[*study_notes(study), *_dev_notes(runs)],
        parts=[not_run] if begun and rest else [],
        is_folded=not begun,
    )


def _linked(grid: Grid, links: Mapping[str, Link]) -> Grid:
    """Let the rows of a study lead to their runs."""
    groups = [[(links.get(name, name), *cells) for name, *cells in group] for group in grid.groups]
    return replace(grid, groups=groups)


# What is published, own runs first


def _table_2_part(report: Report) -> Part:
    return Part(
        "table-2",
        "Table 2",
        tables={"table-2": table_2(report)},
        charts=[*_cost_charts(report)],
        notes=NOTES,
        is_folded=not any(map(_is_of_table_2, report.runs)),
    )


def table_2(report: Report) -> Grid:
    """Return Table 2: runs on newstest2014, the literature and the paper."""
    rows: list[Row] = []
    for run in filter(_is_of_table_2, report.runs):
        cost = _flops(run.cost.time_flops) if run.cost else ""
        counted = _flops(run.cost.product_flops) if run.cost else ""
        lang = run.languages[1]
        score = shown(run.scores[TABLE_2_SET], TABLE_2_KINDS[lang])
        rows.append((_ours(run), *_under(lang, score), *_under(lang, cost), counted))
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


def _ours(run: RunFacts) -> Link:
    return Link(f"nmtkit: {run.label}", run.anchor)


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
        ours = {
            run.label: (run.cost.time_flops, score)
            for run in report.runs
            if run.languages[1] == lang
            and (score := table_2_score(run)) is not None
            and run.cost
            and run.cost.time_flops
        }
        published = {
            row.model: (flops, bleu)
            for row in TABLE_2
            if (flops := getattr(row, f"en_{lang}_flops")) and (bleu := getattr(row, f"en_{lang}"))
        }
        series = [
            Series(whose, [*points.values()], "dots", labels=[*points])
            for whose, points in (("published", published), ("nmtkit", ours))
            if points
        ]
        axis = Axis("FLOPs as Table 2 counts them", is_log=True)
        yield Chart(
            f"cost-{lang}", f"BLEU by training cost, {name}", series, axis, width=560, plot=260
        )


def _reproductions_part(report: Report) -> Part:
    grid = reproductions_grid(report)
    is_folded = not any(isinstance(row[1], Link) for group in grid.groups for row in group)
    tables = {"reproductions": grid}
    return Part("reproductions", "Reproductions", tables=tables, is_folded=is_folded)


def reproductions_grid(report: Report) -> Grid:
    """Return figures of runs and published ones, only ones that are counted alike in a group."""
    groups: list[list[Row]] = []
    runs = [run for run in report.runs if run.languages[1] == "de" and _is_of_table_2(run)]
    for counted, (name, published) in REPRODUCTIONS.items():
        rows: list[Row] = []
        for run in runs if name is not None else []:
            of_set = run.scores[TABLE_2_SET]
            lines = f"{of_set['test_set']['lines']:,}"
            rows.append((counted, _ours(run), "", lines, shown(of_set, str(name))))
        for each in published:
            lines = f"{each.lines:,}" if each.lines else "not said"
            rows.append((counted, each.source, each.model, lines, each.bleu))
        groups.append(rows)
    columns = ("counted as", "system", "model", "lines", "BLEU")
    title = f"trained from scratch: BLEU on {TABLE_2_SET}, English-German"
    return Grid(title, columns, 3, groups)


def _under(lang: str, text: str) -> tuple[str, str]:
    """Return two cells, English-German and English-French, one of which is `text`."""
    return (text, "") if lang == "de" else ("", text)


def _table_4_part(report: Report) -> Part:
    is_folded = not any("bracket_f1" in each for run in report.runs for each in run.scores.values())
    return Part("table-4", "Table 4", tables={"table-4": table_4(report)}, is_folded=is_folded)


def table_4(report: Report) -> Grid:
    """Return Table 4: runs that parse, the literature and the paper."""
    rows: list[Row] = [
        (_ours(run), name, f"{of_set['bracket_f1']['score']:.2f}")
        for run in report.runs
        for name, of_set in run.scores.items()
        if "bracket_f1" in of_set
    ]
    rows += [(row.parser, row.training, f"{row.f1:.1f}") for row in TABLE_4]
    columns = ("parser", "training, or test set of a run", "F1")
    title = "English constituency parsing, section 23 of the Wall Street Journal"
    return Grid.of(title, columns, rows, 2)


# What a run rests on


def _run_part(run: RunFacts) -> Part:
    made = [f"{stage.stage}: {_made(stage)}" for stage in run.stages]
    note = code_note(run.other_code)
    references = [
        f"{name}: {of_set['test_set']['lines']:,} lines, sha256 of the reference "
        f"{of_set['test_set']['sha256']}"
        for name, of_set in run.scores.items()
    ]
    texts = [
        f"{key}: {' '.join(map(str, identity))}"
        for stage in run.stages
        for key, identities in stage.texts.items()
        for identity in identities
    ]
    lists = {
        "What it rests on": [*made, *([note] if note else []), *_libraries(run)],
        "How its scores were counted": [*_hows(run), *references],
        "Texts and their hashes": texts,
    }
    parts = [
        Part(f"{run.anchor}-{number}", title, notes=notes)
        for number, (title, notes) in enumerate(lists.items())
    ]
    return Part(
        run.anchor,
        run.label,
        text=run.description,
        code=f"{run.command}\n{run.verify}",
        parts=[*parts, Part(f"{run.anchor}-recipe", "Recipe", code=_recipe_of(run))],
        is_folded=True,
        aside=run.id,
    )


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


def _made(stage: StageFacts) -> str:
    if not stage.is_here:
        return f"{stage.fingerprint}, not here any more"
    run = stage.run
    code = ", ".join(f"{room} {hashed}" for room, hashed in stage.code.items())
    commit = f", commit {run['commit'][:12]}" if run.get("commit") else ""
    changed = " with changes" if run.get("clean") is False else ""
    took = f", took {duration(stage.seconds)}" if stage.seconds is not None else ""
    return (
        f"{stage.fingerprint}; manifest sha256 {stage.manifest_sha256 or 'not recorded'}; nmtkit "
        f"{stage.made_by.get('nmtkit', '?')}{commit}{changed}, code "
        f"{code or 'not recorded'}; published {stage.published or '?'} on "
        f"{stage.host or '?'}{took}"
    )


def _libraries(run: RunFacts) -> Iterator[str]:
    """Yield the versions of Python and the libraries of each stage, those of several once."""
    of_stages: dict[str, list[str]] = {}
    for stage in run.stages:
        names = [f"{name} {version}" for name, version in stage.made_by.items() if name != "nmtkit"]
        if names:
            of_stages.setdefault(", ".join(names), []).append(stage.stage)
    return (f"{', '.join(stages)}: {names}" for names, stages in of_stages.items())


def _recipe_of(run: RunFacts) -> str:
    """Return the values of the recipe that the artifacts depend on, and the hash of its file."""
    recipe = run.stages[-1].run
    lines = [f"# {recipe.get('recipe', '?')}, sha256 {recipe.get('sha256') or 'not recorded'}"]
    for stage in run.stages:
        for section, values in stage.recipe.items():
            lines += ["", f"[{section}]"]
            lines += [
                f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
            ]
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _flops(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e+", "e")
