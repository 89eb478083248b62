"""nmtkit score."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.analysis.scoring import score_files, score_recipe, worst_lines_parts
from nmtkit.analysis.test_sets import TestSet, named_test_set, own_test_set
from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_unused, load_pipeline, recipe_names
from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.config.settings import RUNS, Settings
from nmtkit.evaluation.scores import score_table
from nmtkit.rendering.show import Form, refuse_csv, show
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE

RECIPE_FORM = "nmtkit score RECIPE"
FILES_FORM = "nmtkit score FILE REFERENCE --lang LANG"


class Metric(StrEnum):
    """The metrics of files."""

    BLEU = "bleu"
    CHRF = "chrf"
    TER = "ter"
    BRACKET_F1 = "bracket-f1"


def score(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="A recipe; or a translation and its reference; or, with --ref or --test-set, the "
            "translations of several systems, one of which may be - (standard input).",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
    # The references of files
    references: opt.References = None,
    lang: opt.Lang = None,
    test_set: opt.TestSet = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Lowercase before scoring.")
    ] = False,
    plain: opt.Plain = False,
    # Scores
    metrics: Annotated[
        list[Metric] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Metric for files: bleu (default), chrf, ter, or bracket-f1 of parse trees; may "
            "be repeated.",
        ),
    ] = None,
    tokenizer: Annotated[
        SacrebleuTokenizer | None,
        typer.Option(
            "--tokenizer",
            metavar="NAME",
            help="Tokenizer of sacreBLEU for files: 13a, intl, zh, ja-mecab, ko-mecab, char, none, "
            "flores101 or flores200 (default: that of the language).",
        ),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst", metavar="N", help="Also show the N lines with the lowest chrF or F1.", min=1
        ),
    ] = None,
    all_kinds: opt.AllKinds = False,
    # A recipe
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    force: opt.Force = False,
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Score the translations of a recipe, or text files.

    Example: nmtkit score hyp.de ref.de --lang de
    """
    form = Form(as_json, table)
    run = None
    if worst:
        refuse_csv(form)
    if _is_recipe(names, references, test_set):
        file_options = {
            "--lang": lang,
            "--lowercase": lowercase,
            "--plain": plain,
            "--metric": metrics,
            "--mirror": mirror,
        }
        check_unused(file_options, RECIPE_FORM, FILES_FORM)
        if tokenizer is not None:
            raise UserError(
                f"--tokenizer is for files; the tokenizer of a recipe is a value of it: pass --set "
                f"scoring.sacrebleu_tokenizer={tokenizer}"
            )
        settings = Settings(runs_dir)
        pipeline = load_pipeline(names[0], overrides, settings, ["score"] if force else [])
        scores = score_recipe(pipeline, worst or 0)
        run = pipeline.run
        all_kinds = all_kinds or pipeline.recipe.scoring.paper_bleu
        progress.log(
            f"score: source, translations and references are in {pipeline.need('translate').path}, "
            "for other metrics such as COMET"
        )
    else:
        check_unused({"--set": overrides, "--force": force}, FILES_FORM, RECIPE_FORM)
        if all(_is_run(name) for name in names):
            raise UserError(
                "score takes one recipe, or files; to score several runs next to each other, run "
                f"`nmtkit compare {shlex.join(names)}`"
            )
        settings = Settings(runs_dir, mirror=mirror)
        settings.check()
        # Programs that read the JSON expect what they asked for.
        metrics = metrics or ([Metric.BLEU] if as_json else [Metric.BLEU, Metric.CHRF])
        _check_metrics(metrics, lang, test_set, lowercase=lowercase)
        if tokenizer is not None and Metric.BLEU not in metrics:
            raise UserError(
                f"--tokenizer {tokenizer} is for BLEU, but --metric is {', '.join(metrics)}; omit "
                "--tokenizer, or add --metric bleu"
            )
        if Metric.BRACKET_F1 in metrics:
            lang = TREE.tag
        # nmtkit score TRANSLATION REFERENCE
        if not references and test_set is None and len(names) == 2:
            references = [Path(names[1])]
            names = names[:1]
        reference_set = _test_set(names, references or [], lang, test_set, settings, plain=plain)
        scores = score_files(
            names,
            reference_set,
            metrics,
            lowercase=lowercase,
            tokenizer=tokenizer,
            worst=worst or 0,
            plain=plain,
        )
    parts = score_table(scores, all_kinds=all_kinds, run=run)
    show(form, scores, parts + worst_lines_parts(scores))


def _is_recipe(names: list[str], references: list[Path] | None, test_set: str | None) -> bool:
    """Return whether a recipe is scored, not files: one name without a reference or a suffix.

    Args:
        names: The arguments of the command.
        references: The values of --ref.
    """
    from nmtkit.store.provenance import split_overrides

    if len(names) > 1 or references or test_set is not None:
        return False
    recipe, _ = split_overrides(names[0])
    return Path(recipe).suffix in ("", ".toml")


def _is_run(name: str) -> bool:
    """Return whether a name can only be a recipe, or a run of one."""
    from nmtkit.store.provenance import split_overrides

    recipe, _ = split_overrides(name)
    return recipe in recipe_names("") or Path(recipe).suffix == ".toml"


def _check_metrics(
    metrics: list[Metric], lang: str | None, test_set: str | None, *, lowercase: bool
) -> None:
    """Refuse options that bracket F1 cannot be combined with."""
    if Metric.BRACKET_F1 in metrics and (len(metrics) > 1 or lang or lowercase or test_set):
        raise UserError(
            "--metric bracket-f1 scores parse trees and cannot be combined with --lang, "
            "--lowercase, --test-set or another --metric; omit them"
        )


def _test_set(
    names: list[str],
    references: list[Path],
    lang: str | None,
    test_set: str | None,
    settings: Settings,
    *,
    plain: bool,
) -> TestSet:
    """Return the test set that the files are scored against.

    Args:
        names: The files of the systems.
        references: The values of --ref.
        lang: The target language, or the language pair of a named test set.
        settings: The folder of downloads and the mirror.

    Raises:
        UserError: The references or their language are missing, or are passed twice.
    """
    if test_set is not None:
        if references:
            raise UserError(
                "--ref cannot be used with --test-set: it has its own references; omit --ref"
            )
        return named_test_set(test_set, lang, settings)
    if not references:
        files = "this file" if len(names) == 1 else f"these {len(names)} files"
        raise UserError(f"the reference of {files} is missing; pass --ref FILE")
    if lang is None:
        raise UserError("the language of the files is missing; pass --lang, such as --lang de")
    return own_test_set(references, lang, plain=plain)
