"""nmtkit compare: scores of systems on one test set, significance, and where they differ most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from sacrebleu.metrics.base import Metric

from nmtkit.analysis.lines import lines_grid, telling_lines
from nmtkit.analysis.test_sets import TestSet, check_length, named_test_set, own_test_set
from nmtkit.cli.options import (
    Html,
    Lang,
    Plain,
    References,
    Src,
    argument,
    check_output,
    command,
    load_pipeline,
    pipeline_inputs,
)
from nmtkit.cli.options import TestSet as TestSetName
from nmtkit.config.settings import Settings
from nmtkit.evaluation.bracket_f1 import BracketF1
from nmtkit.evaluation.sacre import Chrf, bleu_metric
from nmtkit.evaluation.seed import seed
from nmtkit.evaluation.significance import TESTS, paired_test
from nmtkit.evaluation.translations import translated_sets
from nmtkit.reporting.document import Part, page_of, replace_page
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import SCORE_NAMES, hows, kind_of, shown
from nmtkit.reporting.show import Form, show
from nmtkit.sources.kinds import name_of, read_plain
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.score import describe, score_lines
from nmtkit.store.provenance import split_overrides
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE

N_DIFFERENCES = 25  # lines in the JSON and on the page
UNTESTED = ("tokenized_bleu", "compound_split_bleu")  # by the paired tests
ON_TERMINAL = 5  # lines of them
SIGNIFICANT = 0.05  # a p-value below it


@dataclass(frozen=True)
class _System:
    """A system's translations, and the test set if they are a run's."""

    name: str
    hyps: list[str]
    test_set: TestSet | None = None
    lowercase: bool = False


@command("nmtkit compare demo 'demo --set decoding.beam_size=1'", "mirror")
def compare(
    names: Annotated[
        list[str],
        argument(
            "SYSTEM...",
            "The baseline, then other systems: recipes, 'RECIPE --set SECTION.KEY=VALUE', or "
            "files of plain text.",
        ),
    ],
    settings: Settings,
    form: Form,
    test_set: TestSetName = None,
    references: References = None,
    lang: Lang = None,
    src: Src = None,
    plain: Plain = False,
    html: Html = None,
) -> None:
    if html is not None:
        files = [*(references or []), *([src] if src else [])]
        check_output("--html", html, _inputs(names, settings, files))
    systems, common = _systems(names, settings, test_set, references or [], lang, plain=plain)
    if src is not None:
        lines = list(read_plain(src, is_plain=plain, in_order_of=common.order))
        check_length(src, lines, common.name, common.references[0])
        common = replace(common, src=lines)
    comparison = _compare(systems, common)
    scores, notes = _results(comparison)
    if html is not None:
        largest = _differences_grid(comparison, N_DIFFERENCES)
        differences = Part("differences", "Differences", "" if largest else "None.", table=largest)
        parts = [Part("scores", "Scores", table=scores, notes=notes), differences]
        whole = Part("compare", "nmtkit compare", f"Systems on {common.name}", parts=parts)
        replace_page(html, page_of(whole))
        progress.log(f"compare: wrote {html}")
    shown_here = _differences_grid(comparison, ON_TERMINAL)
    show(form, comparison, [scores, *notes, *([shown_here] if shown_here else [])])


def _systems(
    names: Sequence[str],
    settings: Settings,
    test_set: str | None,
    references: Sequence[Path],
    lang: str | None,
    *,
    plain: bool,
) -> tuple[list[_System], TestSet]:
    """Read the systems, the first of which is the baseline, and what all of them translate."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(
            f"`nmtkit compare {' '.join(names)}`: name two or more different systems, the baseline "
            "first"
        )
    order = references[0] if references else None
    systems = [_read(name, settings, test_set, order, plain=plain) for name in names]
    common = next((system.test_set for system in systems if system.test_set), None)
    if references and lang:
        common = replace(
            own_test_set(references, lang, plain=plain), src=common.src if common else None
        )
    elif common is None and test_set:
        common = named_test_set(test_set, lang, settings)
    if common is None or (references and lang is None):
        raise UserError(
            "name the reference of these files, and its language: add --ref FILE and --lang, such "
            "as --lang de, or --lang tree for parses; or --test-set and --lang"
        )
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


def _is_text(name: str) -> bool:
    """Return whether a system is a file of translations, not a recipe."""
    path = Path(name)
    return path.is_file() and path.suffix != ".toml"


def _inputs(names: Sequence[str], settings: Settings, files: Sequence[Path]) -> list[Path]:
    """Return what `compare` may read: `files`, the systems, and the inputs of their recipes."""
    inputs = [*files, settings.downloads_dir]
    if settings.mirror is not None:
        inputs.append(settings.mirror)
    for name in names:
        if _is_text(name):
            inputs.append(Path(name))
        else:
            inputs += pipeline_inputs(load_pipeline(*split_overrides(name), settings))
    return inputs


def _read(
    name: str, settings: Settings, test_set: str | None, order: Path | None, *, plain: bool
) -> _System:
    if _is_text(name):
        path = Path(name)
        return _System(name, list(read_plain(path, is_plain=plain, in_order_of=order)))
    pipeline: Pipeline = load_pipeline(*split_overrides(name), settings)
    translated = pipeline.need("translate")
    test_set = test_set and name_of(test_set)
    sets = {each.name: each for each in translated_sets(translated) if each.references}
    if not sets or test_set not in (None, *sets):
        has = ", ".join(sets) or "none with a reference"
        raise UserError(f"{name} has no test set {test_set or 'to compare'}; it has {has}")
    chosen = sets[test_set or next(iter(sets))]
    if test_set is None and len(sets) > 1:
        others = ", ".join(sets)
        progress.log(f"compare: {name}: {chosen.name}; --test-set names another one of {others}")
    src, hyps, references = chosen.read()
    lang = pipeline.recipe.corpus.tgt_lang
    return _System(
        name,
        hyps,
        TestSet(chosen.name, lang, references, src),
        pipeline.recipe.scoring.lowercase,
    )


def _compare(systems: Sequence[_System], common: TestSet) -> dict[str, Any]:
    """Return what `--json` prints, of which tables and pages are made."""
    lowercase = systems[0].lowercase
    hyps, references = [system.hyps for system in systems], common.references
    metrics: list[Metric] = [BracketF1()]
    if common.lang != TREE:
        metrics = [bleu_metric(common.lang, lowercase=lowercase), Chrf(lowercase=lowercase)]
    found: list[dict[str, Any]] = [
        {
            "name": system.name,
            "identical": system.hyps == hyps[0],  # line by line
            "scores": score_lines(
                f"compare: {system.name}", system.hyps, references, common.lang, lowercase=lowercase
            ),
            "tests": {},
        }
        for system in systems
    ]
    for test in TESTS:
        progress.log(f"compare: {test.replace('_', ' ')}")
        results = paired_test(test, hyps, *references, metrics=metrics)
        for system_found, result in zip(found, results, strict=True):
            system_found["tests"][test] = result
    telling = telling_lines(hyps, common, N_DIFFERENCES, lowercase=lowercase)
    return {
        "test_set": describe(common.name, *references),
        "seed": seed(),  # of the paired tests
        "sentence_metric": telling["metric"],
        "systems": found,
        "differences": telling["lines"],
    }


# What is shown


def _results(comparison: Mapping[str, Any]) -> tuple[Grid, list[str]]:
    """Return scores, paired tests and verdicts as a table, and how each figure was counted."""
    systems, test_set = comparison["systems"], comparison["test_set"]
    first = systems[0]
    rows: list[Row] = []
    notes: list[str] = []
    for metric in first["tests"]["paired_bootstrap"]:
        name = SCORE_NAMES[metric]
        found = (system["tests"]["paired_bootstrap"] for system in systems)
        rows.append((name, *(shown(each, metric, with_interval=True) for each in found)))
        for test, of_first in first["tests"].items():
            of_test = test.replace("_", " ")
            values = (
                "" if system["identical"] else f"{system['tests'][test][metric]['p_value']:.4f}"
                for system in systems
            )
            rows.append((f"{name}, p of {of_test}", *values))
            notes.append(f"{name}, {of_test}: {of_first[metric]['signature']}")
    for key, name in SCORE_NAMES.items():
        if kind_of(key) in UNTESTED and kind_of(key) in first["scores"]:
            rows.append((name, *(shown(system["scores"], key) for system in systems)))
    rows.append((f"{rows[0][0]} against the first", "", *(_verdict(e, first) for e in systems[1:])))
    title = f"{test_set['name']}, {test_set['lines']:,} lines"
    columns = ("score", *(system["name"] for system in systems))
    notes += hows([first["scores"]], UNTESTED)
    notes.append(f"sha256 of the reference: {test_set['sha256']}")
    notes.append(f"seed of the tests: {comparison['seed']} (SACREBLEU_SEED)")
    return Grid.of(title, columns, rows, 1), notes


def _verdict(system: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    """Return what both paired tests say of the first metric: sacreBLEU, or bracket F1."""
    if system["identical"]:
        return "identical"
    metric, before = next(iter(baseline["tests"]["paired_bootstrap"].items()))
    results = [test[metric] for test in system["tests"].values()]
    if any(result["p_value"] >= SIGNIFICANT for result in results):
        return "no significant difference"
    better = "better" if results[0]["score"] > before["score"] else "worse"
    return f"{better} (both p < {SIGNIFICANT})"


def _differences_grid(comparison: Mapping[str, Any], n: int) -> Grid | None:
    names = [system["name"] for system in comparison["systems"]]
    found, head = comparison["differences"][:n], "where they differ most, [in other words]"
    return lines_grid(found, names, head, comparison["sentence_metric"]) if found else None
