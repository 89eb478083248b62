"""What a report tells: runs with all that they rest on, and the paper's tables beside them."""

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

from nmtkit.duration import duration
from nmtkit.reporting.chart import Curve
from nmtkit.reporting.code import OtherCode, code_note
from nmtkit.reporting.cost import BY_TIME, COUNTED, TrainingCost
from nmtkit.reporting.exhibit import Exhibit
from nmtkit.reporting.facts import StudyTable
from nmtkit.reporting.inspection import Grid
from nmtkit.reporting.link import Link
from nmtkit.reporting.published import LANGUAGES, REPRODUCTIONS, TABLE_2, TABLE_2_KINDS, TABLE_4
from nmtkit.reporting.scores import SCORE_NAMES, figure, kind_of, shown

FORMAT = 1  # of report.json; README.md describes it


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
    curves: list[Curve] = field(default_factory=list)  # for the page alone

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
    """All runs, studies and exhibits."""

    written: str
    made_by: dict[str, str]
    runs_dir: str
    runs: list[RunFacts]
    studies: list[StudyTable]
    exhibits: dict[str, Exhibit | None]

    def as_json(self) -> dict[str, Any]:
        """Return what report.json contains."""
        content = asdict(self)
        for run in content["runs"]:
            del run["curves"]
        content["exhibits"] = {
            key: exhibit and exhibit.model_dump(mode="json")
            for key, exhibit in self.exhibits.items()
        }
        content["table_2"] = [asdict(row) for row in TABLE_2]
        content["table_4"] = [asdict(row) for row in TABLE_4]
        content["reproductions"] = [
            {"counted": counted, **asdict(each)}
            for counted, (_, published) in REPRODUCTIONS.items()
            for each in published
        ]
        return {"format": FORMAT, **content}


# What reproduces a row of Table 2 and of Table 4, while no run does: the recipe and its language.
TABLE_2_RECIPES = {
    "wmt14-en-de-base": "de",
    "wmt14-en-de-big": "de",
    "wmt14-en-fr-base": "fr",
    "wmt14-en-fr-big": "fr",
}
TABLE_2_SET = "newstest2014"
TABLE_4_RECIPES = ("wsj-parsing", "wsj-parsing-semi")


def table_2(report: Report) -> Grid:
    """Return Table 2: the literature, the paper, and runs on newstest2014."""
    rows: list[tuple[str, ...]] = []
    for row in TABLE_2:
        costs = _flops(row.en_de_flops), _flops(row.en_fr_flops)
        rows.append((row.model, _figure(row.en_de), _figure(row.en_fr), *costs, ""))
    runs = [run for run in report.runs if _is_of_table_2(run)]
    for run in runs:
        label = Link(f"nmtkit: {run.label}", run.anchor)
        cost = _flops(run.cost.time_flops) if run.cost else ""
        counted = _flops(run.cost.product_flops) if run.cost else ""
        lang = run.languages[1]
        score = shown(run.scores[TABLE_2_SET], TABLE_2_KINDS[lang])
        rows.append((label, *_under(lang, score), *_under(lang, cost), counted))
    for recipe, lang in TABLE_2_RECIPES.items():
        if not any(run.name == recipe for run in runs):
            rows.append((f"nmtkit run {recipe}", *_under(lang, "not run"), "", "", ""))
    columns = (
        "model",
        *(f"BLEU {each}" for each in LANGUAGES.values()),
        *(f"FLOPs {each}, {BY_TIME}" for each in ("English-German", "English-French")),
        f"FLOPs, {COUNTED}",
    )
    return Grid(f"Test set {TABLE_2_SET}", columns, 1, [[row] for row in rows])


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


def reproductions_grid(report: Report) -> Grid:
    """Return published figures and those of runs, only ones that are counted alike in a group."""
    groups: list[list[tuple[str, ...]]] = []
    runs = [run for run in report.runs if run.languages[1] == "de" and _is_of_table_2(run)]
    for counted, (name, published) in REPRODUCTIONS.items():
        rows: list[tuple[str, ...]] = [
            (
                counted,
                each.source,
                each.model,
                f"{each.lines:,}" if each.lines else "not said",
                each.bleu,
            )
            for each in published
        ]
        if name is not None:
            rows += [_reproduced(run, counted, name) for run in runs]
        groups.append(rows)
    columns = ("counted as", "system", "model", "lines", "BLEU")
    title = f"Trained from scratch: BLEU on {TABLE_2_SET}, English-German"
    return Grid(title, columns, 3, groups)


def _reproduced(run: RunFacts, counted: str, name: str) -> tuple[str, ...]:
    of_set = run.scores[TABLE_2_SET]
    label = Link(f"nmtkit: {run.label}", run.anchor)
    return counted, label, "", f"{of_set['test_set']['lines']:,}", shown(of_set, name)


def _under(lang: str, text: str) -> tuple[str, str]:
    """Return two cells, English-German and English-French, one of which is `text`."""
    return (text, "") if lang == "de" else ("", text)


def table_4(report: Report) -> Grid:
    """Return Table 4: the literature, the paper, and runs that parse."""
    rows: list[tuple[str, ...]] = [(row.parser, row.training, f"{row.f1:.1f}") for row in TABLE_4]
    for run in report.runs:
        for name, of_set in run.scores.items():
            if "bracket_f1" in of_set:
                label = Link(f"nmtkit: {run.label}", run.anchor)
                rows.append((label, name, f"{of_set['bracket_f1']['score']:.2f}"))
    names = {run.name for run in report.runs}
    rows += [
        (f"nmtkit run {recipe}", "", "not run") for recipe in TABLE_4_RECIPES if recipe not in names
    ]
    columns = ("parser", "training, or test set of a run", "F1")
    title = "Table 4: English constituency parsing, section 23 of the Wall Street Journal"
    return Grid(title, columns, 2, [[row] for row in rows])


def runs_grid(report: Report) -> Grid:
    """Return each run on each of its test sets, every kind of score named."""
    groups: list[list[tuple[str, ...]]] = []
    sets = [of_set for run in report.runs for of_set in run.scores.values()]
    kinds = [name for name in SCORE_NAMES if any(kind_of(name) in of_set for of_set in sets)]
    for run in report.runs:
        for name, of_set in run.scores.items():
            cells = [shown(of_set, kind) for kind in kinds]
            cost = run.cost
            costs = (_flops(cost.time_flops), _flops(cost.product_flops)) if cost else ("", "")
            parameters = "" if run.n_parameters is None else f"{run.n_parameters / 1e6:.2f}"
            groups.append([(Link(run.label, run.anchor), name, *cells, parameters, *costs)])
    names = (SCORE_NAMES[kind] for kind in kinds)
    columns = ("run", "test set", *names, "params, 10^6", f"FLOPs, {BY_TIME}", f"FLOPs, {COUNTED}")
    return Grid("All scored runs", columns, 2, groups)


def artifacts_of(run: RunFacts) -> list[tuple[str, str]]:
    """Return each artifact that a run rests on, and its hash, its code, when and where."""
    note = code_note(run.other_code)
    made = [(stage.stage, _made(stage)) for stage in run.stages]
    return [*made, ("note", note)] if note else made


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


def recipe_of(run: RunFacts) -> str:
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


def libraries(run: RunFacts) -> str:
    """Return the versions of Python and the libraries of each stage, those of several once."""
    of_stages: dict[str, list[str]] = {}
    for stage in run.stages:
        names = [f"{name} {version}" for name, version in stage.made_by.items() if name != "nmtkit"]
        if names:
            of_stages.setdefault(", ".join(names), []).append(stage.stage)
    return "; ".join(f"{', '.join(stages)}: {names}" for names, stages in of_stages.items())


def texts(run: RunFacts) -> list[tuple[str, str]]:
    """Return each text that was read, and what determines it: hashes, or a commit."""
    return [
        (key, " ".join(map(str, identity)))
        for stage in run.stages
        for key, identities in stage.texts.items()
        for identity in identities
    ]


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _flops(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e+", "e")
