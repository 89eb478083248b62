"""Scores of systems on a test set, with their worst lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmtkit.analysis.ranked_lines import lines_grid, rank_lines
from nmtkit.analysis.test_sets import TestSet, check_length
from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.evaluation.degenerate import degenerate_warning
from nmtkit.evaluation.translations import read_scores, translated_sets
from nmtkit.rendering.grid import Grid
from nmtkit.sources.kinds import read_plain
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

STANDARD_INPUT = "-"


def score_recipe(pipeline: Pipeline, worst: int = 0) -> dict[str, Any]:
    """Score the translations of a recipe.

    Args:
        worst: Number of worst lines to add per test set.

    Returns:
        The scores by test set, in the format of `scores.json`.
    """
    from nmtkit.stages import score

    # Scores of lines are not published: they are quick to compute, and rarely needed.
    scores = read_scores(score.run(pipeline))
    # The artifact of scores has no lines, unlike that of the translations.
    for translated in translated_sets(pipeline.need("translate")):
        src, hyps, references = translated.read()
        if warning := degenerate_warning(zip(src, hyps, strict=True)):
            progress.warn_once(f"{translated.name}: {warning}")
        if worst and references:
            test_set = TestSet(translated.name, pipeline.recipe.corpus.tgt_lang, references, src)
            scores[translated.name]["worst"] = rank_lines(
                [hyps], test_set, worst, lowercase=pipeline.recipe.scoring.lowercase
            )
    return scores


def score_files(
    systems: Sequence[str],
    test_set: TestSet,
    metrics: Sequence[str] = ("bleu",),
    *,
    lowercase: bool = False,
    tokenizer: SacrebleuTokenizer | None = None,
    worst: int = 0,
    plain: bool = False,
) -> dict[str, Any]:
    """Score the translations of several systems.

    Args:
        systems: The files of the systems; "-" is standard input.
        metrics: bleu, chrf and ter; parse trees always get bracket F1.
        lowercase: Lowercase before scoring.
        tokenizer: A tokenizer of sacreBLEU; None: that of the language.
        worst: Number of worst lines to add per system.
        plain: Read the files as plain text, even if they look like another format.

    Returns:
        The scores by system, in the format of `scores.json`.

    Raises:
        UserError: A file is named twice or has another number of lines than the references, or a
            metric cannot be computed for the language.
    """
    from nmtkit.stages.score import describe, score_lines  # imports sacreBLEU

    references = test_set.references
    if "ter" in metrics and not test_set.lang.is_spaced:
        raise UserError(
            f"--metric ter needs spaces between words, but {test_set.lang} is written without "
            "them; omit --metric ter"
        )
    if len(set(systems)) < len(systems):
        raise UserError(f"a file is passed twice ({', '.join(systems)}); pass each file once")

    # All files are read first: a mistake is reported before any score is computed.
    texts: dict[str, list[str]] = {}
    for system in systems:
        # Its format is checked like that of any other file.
        path = Path("/dev/stdin" if system == STANDARD_INPUT else system)
        texts[system] = list(read_plain(path, is_plain=plain, in_order_of=test_set.order))
        check_length(path, texts[system], test_set.name, references[0])
    scores = {}
    for system, hyps in texts.items():
        # The source may be unknown; references stand in for it.
        if warning := degenerate_warning(zip(test_set.src or references[0], hyps, strict=True)):
            progress.warn(f"{system}: {warning}")
        system_scores: dict[str, Any] = {"test_set": describe(test_set.name, *references)}
        system_scores |= score_lines(
            f"score: {system}",
            hyps,
            references,
            test_set.lang,
            metrics,
            lowercase=lowercase,
            tokenizer=tokenizer,
        )
        if worst:
            system_scores["worst"] = rank_lines([hyps], test_set, worst, lowercase=lowercase)
        scores[system] = system_scores
    return scores


def worst_lines_parts(scores: Mapping[str, Any]) -> list[Grid | str]:
    """Return tables of the worst lines by test set or system, if they were computed."""
    parts: list[Grid | str] = []
    for name, name_scores in scores.items():
        worst = name_scores.get("worst")
        if worst:
            title = f"the worst of {name}"
            parts.append(lines_grid(worst["lines"], ["translation"], title, worst["metric"]))
            parts.append(f"{worst['metric']} of single lines: {worst['signature']}")
    return parts
