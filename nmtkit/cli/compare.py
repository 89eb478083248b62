"""nmtkit compare: scores of systems on one test set, significance, and where they differ most."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from sacrebleu.metrics.base import Metric

from nmtkit import progress
from nmtkit.cli.known_runs import named_chain
from nmtkit.cli.options import Html, Lang, References, Src, command
from nmtkit.cli.options import TestSet as TestSetName
from nmtkit.cli.score import TestSet, check_length, own_test_set
from nmtkit.errors import UserError
from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import BracketF1, bracket_f1
from nmtkit.evaluation.plain_text import warnings
from nmtkit.evaluation.seed import seed
from nmtkit.evaluation.significance import TESTS, paired_test, translation_metrics
from nmtkit.evaluation.translations import translated_sets
from nmtkit.machine import Machine
from nmtkit.reporting.code import OtherCode, all_of, code_note, marked
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.page import TEMPLATES, replace_page
from nmtkit.reporting.scores import SCORE_NAMES, how_counted, kind_of, shown
from nmtkit.reporting.show import Form, show
from nmtkit.sources.kinds import read_plain
from nmtkit.stages.code import other_code
from nmtkit.stages.score import describe

N_DIFFERENCES = 25  # lines in the JSON and on the page
UNTESTED = ("tokenized_bleu", "compound_split_bleu")  # by the paired tests
ON_TERMINAL = 5  # lines of them
SIGNIFICANT = 0.05  # a p-value below it


@dataclass(frozen=True)
class ComparedSystem:
    """A system beside the first one, the baseline."""

    name: str
    identical: bool  # line by line, to the baseline
    scores: dict[str, Any]  # each kind of BLEU, or bracket F1
    tests: dict[str, Any]  # of each paired test: score, p-value, interval and signature of a metric
    other_code: OtherCode = field(default_factory=dict)  # that made the translations of a run


@dataclass(frozen=True)
class Difference:
    """A line that the systems translate differently."""

    line: int  # from 1
    src: str | None
    references: list[str]
    hyps: list[str]
    scores: list[float]  # of each system, sentence-level


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set, and the lines where they differ most."""

    test_set: dict[str, Any]
    seed: str  # of the paired tests
    sentence_metric: str  # what the differences are measured by
    systems: list[ComparedSystem]
    differences: list[Difference]


@dataclass(frozen=True)
class _System:
    """A system's translations, and the test set and its source if they are a run's."""

    name: str
    hyps: list[str]
    test_set: TestSet | None = None
    src: list[str] | None = None
    lowercase: bool = False
    other_code: OtherCode = field(default_factory=dict)


@command("nmtkit compare demo 'demo --set decoding.beam_size=1'")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM...",
            help="The baseline, then other systems: recipes, 'RECIPE --set SECTION.KEY=VALUE', or "
            "files of plain text.",
        ),
    ],
    machine: Machine,
    form: Form,
    test_set: TestSetName = None,
    references: References = None,
    lang: Lang = None,
    src: Src = None,
    html: Html = None,
) -> None:
    """Compare systems: BLEU, significance, largest differences."""
    systems, common = _systems(names, machine, test_set, references or [], lang)
    lines = next((system.src for system in systems if system.src), None)
    if src is not None:
        lines = list(read_plain(src))
        check_length(src, lines, common.name, common.references[0])
    comparison = _compare(systems, common, lines)
    scores, notes = _results(comparison)
    if html is not None:
        marks = [(each, _marked_hyps(comparison, each)) for each in comparison.differences]
        page = TEMPLATES.get_template("compare.html.j2")
        values = {"comparison": comparison, "scores": scores, "notes": notes, "differences": marks}
        replace_page(html, page.render(values))
        progress.say(f"compare: wrote {html}")
    differences = [_differences_grid(comparison)] if comparison.differences else []
    show(form, comparison, [scores, *notes, *differences])


def _systems(
    names: Sequence[str],
    machine: Machine,
    test_set: str | None,
    references: Sequence[Path],
    lang: str | None,
) -> tuple[list[_System], TestSet]:
    """Read the systems, the first of which is the baseline, and what all of them translate."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(
            f"`nmtkit compare {' '.join(names)}`: name two or more different systems, the baseline "
            "first"
        )
    systems = [_read(name, machine, test_set) for name in names]
    common = _common_test_set(systems, references, lang)
    for system in systems:
        own = system.test_set
        if own and not any(reference in common.references for reference in own.references):
            raise UserError(
                f"{system.name} has other references ({own.name}, {len(own.references[0]):,} "
                f"lines) than {common.name} ({len(common.references[0]):,} lines); compare on one "
                "test set"
            )
        check_length(system.name, system.hyps, common.name, common.references[0])
    return systems, common


def _read(name: str, machine: Machine, test_set: str | None) -> _System:
    path = Path(name)
    if path.is_file() and path.suffix != ".toml":
        return _System(name, list(read_plain(path)))
    chain = named_chain(name, machine)
    translated = chain.need("translate")
    sets = {each.name: each for each in translated_sets(translated) if each.references}
    if not sets or test_set not in (None, *sets):
        has = ", ".join(sets) or "none with a reference"
        raise UserError(f"{name} has no test set {test_set or 'to compare'}; it has {has}")
    chosen = sets[test_set or next(iter(sets))]
    if test_set is None and len(sets) > 1:
        others = ", ".join(sets)
        progress.say(f"compare: {name}: {chosen.name}; --test-set names another one of {others}")
    src, hyps, references = chosen.read()
    lang = chain.recipe.corpus.tgt_lang
    return _System(
        name,
        hyps,
        TestSet(chosen.name, lang, references),
        src,
        chain.recipe.scoring.lowercase,
        other_code(translated.manifest),
    )


def _common_test_set(
    systems: Sequence[_System], references: Sequence[Path], lang: str | None
) -> TestSet:
    if references:
        if lang is None:
            raise UserError(
                "--ref needs the language of the files: add --lang, such as --lang de, or --lang "
                "tree for parses"
            )
        return own_test_set(references, lang)
    for system in systems:
        if system.test_set:
            return system.test_set
    raise UserError("name the reference of these files: add --ref FILE and --lang")


def _compare(systems: Sequence[_System], common: TestSet, src: Sequence[str] | None) -> Comparison:
    lowercase = systems[0].lowercase
    references = common.references
    hyps = [system.hyps for system in systems]
    used = seed()
    for system in systems if not common.is_of_trees else []:
        for warning in warnings(system.hyps, references):
            progress.say(f"compare: {system.name}: {warning}")
    metrics: list[Metric] = (
        [BracketF1()]
        if common.is_of_trees
        else translation_metrics(common.lang, lowercase=lowercase)
    )
    tests = {}
    for test in TESTS:
        progress.say(f"compare: {test.replace('_', ' ')}")
        tests[test] = paired_test(test, hyps, *references, metrics=metrics)
    return Comparison(
        test_set=describe(common.name, *references),
        seed=used,
        sentence_metric="bracket F1" if common.is_of_trees else "chrF2",
        systems=[
            ComparedSystem(
                name=system.name,
                identical=system.hyps == systems[0].hyps,
                scores=_scores(system.hyps, common, lowercase=lowercase),
                tests={test: tests[test][number] for test in TESTS},
                other_code=system.other_code,
            )
            for number, system in enumerate(systems)
        ],
        differences=_differences(systems, references, src, metrics[-1]),
    )


def _scores(hyps: Sequence[str], test_set: TestSet, *, lowercase: bool) -> dict[str, Any]:
    if test_set.is_of_trees:
        return {"bracket_f1": bracket_f1(hyps, test_set.references[0])}
    return count_scores(hyps, *test_set.references, lang=test_set.lang, lowercase=lowercase)


def _differences(
    systems: Sequence[_System],
    references: Sequence[Sequence[str]],
    src: Sequence[str] | None,
    metric: Metric,
) -> list[Difference]:
    """Return the lines with the largest range of a metric."""
    found = []
    for index, hyps in enumerate(zip(*(system.hyps for system in systems), strict=True)):
        if len(set(hyps)) > 1:
            refs = [reference[index] for reference in references]
            scores = [float(metric.sentence_score(hyp, refs).score) for hyp in hyps]
            line = None if src is None else src[index]
            found.append(Difference(index + 1, line, refs, list(hyps), scores))
    found.sort(key=lambda each: min(each.scores) - max(each.scores))
    return found[:N_DIFFERENCES]


# What is shown


def _results(comparison: Comparison) -> tuple[Grid, list[str]]:
    """Return scores, paired tests and verdicts as a table, and how each figure was counted."""
    systems = comparison.systems
    rows: list[Row] = []
    note = code_note(all_of(*(system.other_code for system in systems)))
    hows = [f"note: {note}"] if note else []
    for metric in systems[0].tests["paired_bootstrap"]:
        name = SCORE_NAMES[metric]
        found = (system.tests["paired_bootstrap"] for system in systems)
        rows.append((name, *(shown(each, metric, with_interval=True) for each in found)))
        for test, of_first in systems[0].tests.items():
            of_test = test.replace("_", " ")
            values = (
                "" if system.identical else f"{system.tests[test][metric]['p_value']:.4f}"
                for system in systems
            )
            rows.append((f"{name}, p of {of_test}", *values))
            hows.append(f"{name}, {of_test}: {of_first[metric]['signature']}")
    scores = systems[0].scores
    for key, name in SCORE_NAMES.items():
        if kind_of(key) in UNTESTED and kind_of(key) in scores:
            rows.append((name, *(shown(system.scores, key) for system in systems)))
            hows += [f"{name}: {how_counted(scores[key])}"] if key in scores else []
    verdicts = (_verdict(system, systems[0]) for system in systems[1:])
    rows.append((f"{rows[0][0]} against the first", "", *verdicts))
    title = f"{comparison.test_set['name']}, {comparison.test_set['lines']:,} lines"
    columns = ("score", *(marked(system.name, system.other_code) for system in systems))
    hows.append(f"seed of the tests: {comparison.seed} (SACREBLEU_SEED)")
    return Grid.of(title, columns, rows, 1), hows


def _verdict(system: ComparedSystem, baseline: ComparedSystem) -> str:
    """Return what both paired tests say of the first metric: sacreBLEU, or bracket F1."""
    if system.identical:
        return "identical"
    metric = next(iter(system.tests["paired_bootstrap"]))
    before = baseline.tests["paired_bootstrap"][metric]["score"]
    results = [test[metric] for test in system.tests.values()]
    if f"{results[0]['score']:.2f}" == f"{before:.2f}":
        return "no difference"
    if any(result["p_value"] >= SIGNIFICANT for result in results):
        return "no significant difference"
    better = "better" if results[0]["score"] > before else "worse"
    return f"{better} (both p < {SIGNIFICANT})"


def _differences_grid(comparison: Comparison) -> Grid:
    groups: list[list[Row]] = []
    for each in comparison.differences[:ON_TERMINAL]:
        line = f"{each.line:,}"
        group: list[Row] = [(line, "source", each.src, "")] if each.src is not None else []
        group += [(line, "reference", reference, "") for reference in each.references]
        for system, words, score in _marked_hyps(comparison, each):
            text = " ".join(f"[{text}]" if is_other else text for text, is_other in words)
            group.append((line, system, text, f"{score:.1f}"))
        groups.append(group)
    columns = ("line", "", "where they differ most, [in other words]", comparison.sentence_metric)
    return Grid("", columns, 3, groups)


def _marked_hyps(
    comparison: Comparison, of_line: Difference
) -> list[tuple[str, list[tuple[str, bool]], float]]:
    """Return each system, its line with marks beside the baseline, or of this beside all others."""
    baseline, *others = of_line.hyps
    words = [marked_words(baseline, others), *(marked_words(other, [baseline]) for other in others)]
    names = (system.name for system in comparison.systems)
    return list(zip(names, words, of_line.scores, strict=True))


def marked_words(hyp: str, others: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the pieces of a line, and of each whether others have other words there."""
    words = hyp.split(" ")
    is_other = [False] * len(words)
    for other in others:
        matcher = SequenceMatcher(None, words, other.split(" "))
        for what, begin, end, *_ in matcher.get_opcodes():
            if what != "equal":
                is_other[begin:end] = [True] * (end - begin)
    together = groupby(zip(words, is_other, strict=True), key=lambda each: each[1])
    return [(" ".join(word for word, _ in group), key) for key, group in together]
