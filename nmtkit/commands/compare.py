"""Compare systems on one test set: scores, significance, and where they differ most."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric

from nmtkit import progress
from nmtkit.cli.known_runs import named_chain
from nmtkit.commands.score import TestSet, own_test_set
from nmtkit.errors import UserError
from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import BracketF1, bracket_f1
from nmtkit.evaluation.plain_text import warnings
from nmtkit.evaluation.seed import seed
from nmtkit.evaluation.significance import TESTS, paired_test, translation_metrics
from nmtkit.evaluation.translations import TranslatedSet, translated_sets
from nmtkit.machine import Machine
from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.facts import ComparedSystem, Comparison, Difference
from nmtkit.sources.kinds import read_plain
from nmtkit.stages.code import other_code
from nmtkit.stages.score import describe, text_tools

N_DIFFERENCES = 5


@dataclass(frozen=True)
class _System:
    """A system's translations, and the test set and its source if they are a run's."""

    name: str
    hyps: list[str]
    test_set: TestSet | None = None
    src: list[str] | None = None
    lowercase: bool = False
    other_code: OtherCode = field(default_factory=dict)


def compare(
    names: Sequence[str],
    machine: Machine,
    *,
    test_set: str | None = None,
    references: Sequence[Path] = (),
    lang: str | None = None,
    source: Path | None = None,
) -> Comparison:
    """Compare systems with the first one, the baseline.

    Args:
        names: of systems, each a run as one types it or a file of plain text.
        test_set: which one of the runs' test sets; by default the baseline's first.
        references: of files; those of runs have one.
        lang: the language of the references.
        source: the source of files, which is only shown.

    Raises:
        UserError: a system does not exist, or they do not translate the same test set.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(
            f"`nmtkit compare {' '.join(names)}`: name two or more different systems, the baseline "
            "first"
        )
    systems = [_read(name, machine, test_set) for name in names]
    common = _common_test_set(systems, references, lang)
    for system in systems:
        _check(system, common)
    src = next((system.src for system in systems if system.src), None)
    if source is not None:
        src = list(read_plain(source))
        _check_length(str(source), src, common)
    return _compare(systems, common, src)


def _read(name: str, machine: Machine, test_set: str | None) -> _System:
    path = Path(name)
    if path.is_file() and path.suffix != ".toml":
        return _System(name, list(read_plain(path)))
    chain = named_chain(name, machine)
    translated = chain.need("translate")
    chosen = _choose(name, translated_sets(translated), test_set)
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


def _choose(run: str, sets: Sequence[TranslatedSet], test_set: str | None) -> TranslatedSet:
    scored = {each.name: each for each in sets if each.references}
    if not scored or test_set not in (None, *scored):
        has = ", ".join(scored) or "none with a reference"
        raise UserError(f"{run} has no test set {test_set or 'to compare'}; it has {has}")
    name = test_set or next(iter(scored))
    if test_set is None and len(scored) > 1:
        progress.say(f"compare: {run}: {name}; --test-set names another one of {', '.join(scored)}")
    return scored[name]


def _common_test_set(
    systems: Sequence[_System], references: Sequence[Path], lang: str | None
) -> TestSet:
    of_run = next((system.test_set for system in systems if system.test_set), None)
    if references:
        if lang is None:
            raise UserError(
                "--ref needs the language of the files: add --lang, such as --lang de, or --lang "
                "tree for parses"
            )
        return own_test_set(references, lang)
    if of_run is None:
        raise UserError("name the reference of these files: add --ref FILE and --lang")
    return of_run


def _check(system: _System, common: TestSet) -> None:
    """Check that a system translates the same test set as the others."""
    own = system.test_set
    if own is not None and not any(reference in common.references for reference in own.references):
        raise UserError(
            f"{system.name} has other references ({own.name}, {len(own.references[0]):,} lines) "
            f"than {common.name} ({len(common.references[0]):,} lines); compare on one test set"
        )
    _check_length(system.name, system.hyps, common)


def _check_length(name: str, lines: Sequence[str], common: TestSet) -> None:
    if len(lines) != (n_lines := len(common.references[0])):
        raise UserError(
            f"{name} has {len(lines):,} lines, but {common.name} has {n_lines:,}; give files of "
            "the same test set"
        )


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
    tools = text_tools(test_set.lang)
    return {**count_scores(hyps, *test_set.references, tools=tools, lowercase=lowercase)}


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
