"""Compares systems on one test set: scores, paired significance tests and differences.

A system is a recipe, whose translations were published, or a file or pipe of translations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric

from nmtkit.analysis.ranked_lines import rank_lines
from nmtkit.analysis.test_sets import TestSet, check_length, named_test_set, own_test_set
from nmtkit.config.loading import load_recipe
from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.config.settings import Settings
from nmtkit.evaluation.bracket_f1 import BracketF1
from nmtkit.evaluation.sacre import Chrf, bleu_metric
from nmtkit.evaluation.seed import seed
from nmtkit.evaluation.significance import TESTS, paired_test
from nmtkit.evaluation.translations import translated_sets
from nmtkit.sources.kinds import read_plain, source_name
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.score import describe, score_lines
from nmtkit.store.provenance import split_overrides
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE
from nmtkit.utils.text import counted

N_DIFFERENCES = 25  # lines in the result


@dataclass(frozen=True)
class System:
    """The translations of a system.

    Attributes:
        name: The system, as the user named it.
        hyps: The translations.
        test_set: The test set, if the system is a recipe.
        lowercase: Whether the recipe lowercases before scoring.
        tokenizer: The tokenizer of sacreBLEU that the recipe sets.
        paper_bleu: Whether the recipe asks for the paper's kinds of BLEU.
    """

    name: str
    hyps: list[str]
    test_set: TestSet | None = None
    lowercase: bool = False
    tokenizer: SacrebleuTokenizer | None = None
    paper_bleu: bool = False


def is_text_file(name: str) -> bool:
    """Return whether the name of a system is a file or a pipe of translations, not a recipe.

    A file that does not exist is recognized by its suffix, such as .de.
    """
    recipe, overrides = split_overrides(name)
    path = Path(recipe)
    if overrides or path.suffix == ".toml":
        return False
    return path.suffix != "" or (path.exists() and not path.is_dir())


def compare_systems(
    names: Sequence[str],
    settings: Settings,
    *,
    test_set: str | None = None,
    references: Sequence[Path] = (),
    lang: str | None = None,
    src: Path | None = None,
    plain: bool = False,
) -> dict[str, Any]:
    """Compare systems with the first one.

    Args:
        names: The baseline, then other systems: recipes, with `--set` if need be, or files.
        settings: The folder of artifacts and the mirror.
        test_set: Name of the test set; a recipe may have several.
        lang: Language of the references, or the language pair of a public test set.
        src: File of the source text.
        plain: Read files as plain text, even if they look like another format.

    Returns:
        The comparison, as `nmtkit compare --json` prints it.

    Raises:
        UserError: A system cannot be read, or the systems translate different test sets.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise UserError(
            f"`nmtkit compare {' '.join(names)}` needs two or more different systems; pass the "
            "baseline first"
        )
    # Segments of SGML files are read in the order of the first reference, as in mteval.
    order = references[0] if references else None
    systems = []
    for name in names:
        if is_text_file(name):
            hyps = list(read_plain(Path(name), is_plain=plain, in_order_of=order))
            systems.append(System(name, hyps))
        else:
            systems.append(_read_recipe(name, settings, test_set))
    common = _common_test_set(systems, settings, test_set, references, lang, plain=plain)
    for system in systems:
        _check_same_test_set(system, common)
    if src is not None:
        lines = list(read_plain(src, is_plain=plain, in_order_of=common.order))
        check_length(src, lines, common.name, common.references[0])
        common = replace(common, src=lines)
    return _compare(systems, common)


def _read_recipe(name: str, settings: Settings, test_set: str | None) -> System:
    """Read the published translations of a recipe.

    Args:
        name: The recipe, with its overrides.
        settings: The folder of artifacts.
        test_set: Name of the test set; by default, the first one with references.
    """
    recipe_name, overrides = split_overrides(name)
    recipe = load_recipe(recipe_name, overrides)
    pipeline = Pipeline(recipe, settings, recipe_name, overrides)
    # Without a reference, systems cannot be compared.
    sets = {}
    for translated in translated_sets(pipeline.need("translate")):
        if translated.references:
            sets[translated.name] = translated
    if test_set is not None:
        test_set = source_name(test_set)
    if not sets or test_set not in (None, *sets):
        available = ", ".join(sets) or "none with a reference"
        raise UserError(f"{name} has no test set {test_set or 'to compare'}; it has {available}")
    chosen = sets[test_set] if test_set is not None else next(iter(sets.values()))
    if test_set is None and len(sets) > 1:
        progress.log(
            f"compare: {name}: using test set {chosen.name}; pass --test-set to choose from "
            f"{', '.join(sets)}"
        )
    src, hyps, references = chosen.read()
    own_set = TestSet(chosen.name, recipe.corpus.tgt_lang, references, src)
    scoring = recipe.scoring
    return System(
        name,
        hyps,
        own_set,
        lowercase=scoring.lowercase,
        tokenizer=scoring.sacrebleu_tokenizer,
        paper_bleu=scoring.paper_bleu,
    )


def _common_test_set(
    systems: Sequence[System],
    settings: Settings,
    test_set: str | None,
    references: Sequence[Path],
    lang: str | None,
    *,
    plain: bool,
) -> TestSet:
    """Return the test set: the user's references, that of a recipe, or a public one.

    Args:
        settings: The folder of downloads and the mirror.
        test_set: Name of a public test set.
        lang: Language of the references, or the language pair of the public test set.
        plain: Read files as plain text.
    """
    # The first recipe decides; `_check_same_test_set` refuses systems of another test set.
    recipe_set = None
    for system in systems:
        if recipe_set is None:
            recipe_set = system.test_set
    # The user's references have the lines of the recipe's set, so its source text fits them.
    if references and lang:
        own_set = own_test_set(references, lang, plain=plain)
        return replace(own_set, src=recipe_set.src if recipe_set else None)
    if recipe_set is not None and not references:
        return recipe_set
    if test_set is not None and not references:
        return named_test_set(test_set, lang, settings)
    raise UserError(
        "the reference or its language is missing; pass --ref FILE and --lang LANG (such as de, "
        "or tree for parses), or --test-set and --lang"
    )


def _check_same_test_set(system: System, common: TestSet) -> None:
    """Check that a system translates the test set.

    Raises:
        UserError: The system has other references, or another number of lines.
    """
    # Recipes may name the same test set differently, so its references are compared.
    own = system.test_set
    if own is not None and not any(ref in common.references for ref in own.references):
        raise UserError(
            f"the references of {system.name} ({own.name}, "
            f"{counted(len(own.references[0]), 'line')}) differ from those of {common.name} "
            f"({counted(len(common.references[0]), 'line')}); pass systems that translate the "
            "same test set"
        )
    check_length(system.name, system.hyps, common.name, common.references[0])


def _compare(systems: Sequence[System], test_set: TestSet) -> dict[str, Any]:
    """Score all systems, and test their differences from the first one."""
    # All systems are scored as the baseline is, whatever their own recipes say.
    lowercase = systems[0].lowercase
    tokenizer = systems[0].tokenizer
    hyps = [system.hyps for system in systems]
    references = test_set.references
    results: list[dict[str, Any]] = []
    for system in systems:
        scores = score_lines(
            f"compare: {system.name}",
            system.hyps,
            references,
            test_set.lang,
            lowercase=lowercase,
            tokenizer=tokenizer,
        )
        results.append(
            {
                "name": system.name,
                "identical": system.hyps == hyps[0],
                "scores": scores,
                "tests": {},
            }
        )

    metrics: list[Metric]
    if test_set.lang == TREE:
        metrics = [BracketF1()]
    else:
        bleu = bleu_metric(test_set.lang, lowercase=lowercase, tokenizer=tokenizer)
        metrics = [bleu, Chrf(lowercase=lowercase)]
    # All systems are resampled alike, as paired tests require.
    for test in TESTS:
        progress.log(f"compare: {test.replace('_', ' ')}")
        test_results = paired_test(test, hyps, *references, metrics=metrics)
        for result, test_result in zip(results, test_results, strict=True):
            result["tests"][test] = test_result

    differences = rank_lines(hyps, test_set, N_DIFFERENCES, lowercase=lowercase)
    return {
        "test_set": describe(test_set.name, *references),
        "seed": seed(),  # of the paired tests
        # A run of the paper's recipes is compared in its kinds of BLEU, too, also with a file.
        "paper_bleu": any(system.paper_bleu for system in systems),
        "sentence_metric": differences["metric"],
        "systems": results,
        "differences": differences["lines"],
    }
