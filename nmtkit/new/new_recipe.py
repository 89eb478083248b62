"""A new recipe for a user's own parallel text: the file, and the sets that are held out."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nmtkit.config.loading import bundled_recipes, parse_recipe
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.new.recipe_text import MAX_TOKENS, MIN_TOKENS, NewRecipe, render_recipe
from nmtkit.new.survey import HELD_OUT_SETS, Survey, held_out_files, survey_text
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages.fine_tuning import open_parent
from nmtkit.store.files import whole_file
from nmtkit.store.output_check import check_output
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import SET_NAME
from nmtkit.utils.text import counted

MIN_PAIRS = 100  # with fewer, a test set would have a handful of lines
# With fewer, a model learns little from scratch: after 100 pairs it has 0.31 BLEU, and 62.03 after
# fine-tuning (pipelines/results/fine-tuning_cpu_2026-11-22.md). Multi30k has 29,000.
FEW_PAIRS = 10_000


def write_recipe(new: NewRecipe, print_lines: Callable[[str], None]) -> Path:
    """Write NAME.toml to the current folder, and the sets that are held out of the text.

    Args:
        new: The recipe to be written.
        print_lines: Prints the first pairs of a text as it is read.

    Returns:
        The path of the recipe.

    Raises:
        UserError: The recipe would be invalid, a text cannot be read or is too small, or a file of
            the same name has other content.
    """
    held_out: dict[str, FilePair] = {}
    for kind in HELD_OUT_SETS:
        if kind not in new.sets:
            src, tgt = f"{new.name}/{kind}.{new.src_lang}", f"{new.name}/{kind}.{new.tgt_lang}"
            # Sentences of any source may look like another format, such as a table.
            held_out[kind] = FilePair(name=kind, src=src, tgt=tgt, plain=True)
    _check_name(new.name)
    _check_vocabulary(new)

    # A recipe of one pair has all values that can be invalid: they are refused before the text,
    # which may be large, is read.
    own_sets = list(new.sets.values())
    new = replace(new, sets={**new.sets, **held_out})
    recipe = parse_recipe(render_recipe(new, Survey(n_pairs=1)), new.path)
    if new.bundle is not None:
        open_parent(str(new.bundle.artifact.path), recipe)

    # Sentencepiece reads plain text without a tokenizer, too.
    has_tokens = (
        new.bundle is not None
        and new.bundle.text.src.tokenizer == "none"
        and isinstance(new.bundle.text.subword, BpeSubword)
    )
    survey = survey_text(
        new.train,
        own_sets,
        (new.src_lang, new.tgt_lang),
        Cleaning(MIN_TOKENS, MAX_TOKENS, new.max_ratio),
        print_lines,
        has_tokens=has_tokens,
    )
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(
            f"the text has {counted(survey.n_pairs, 'pair')}; pass at least {MIN_PAIRS}"
        )
    if new.bundle is None and survey.n_pairs < FEW_PAIRS:
        progress.warn(
            f"new: the text has only {survey.n_pairs:,} pairs, so translations may be poor; add "
            "text, or fine-tune a model of the same languages with --from BUNDLE"
        )
    files = held_out_files(survey, held_out)
    files[new.path] = render_recipe(new, survey)

    # No file is written if another one is in the way.
    for path, content in files.items():
        check_output("the output", path)
        if path.exists() and path.read_bytes() != content.encode():
            raise UserError(
                f"{path} exists and has other content; choose another name for the recipe, or move "
                "the file"
            )
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as draft:
            draft.write_text(content, encoding="utf-8", newline="\n")
    return new.path


def _check_name(name: str) -> None:
    if not re.fullmatch(SET_NAME, name):
        raise UserError(f"{name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    if name in [path.stem for path in bundled_recipes()]:
        raise UserError(f"a recipe {name} comes with nmtkit; choose another name")


def _check_vocabulary(new: NewRecipe) -> None:
    for language in (new.src_lang, new.tgt_lang):
        if new.vocabulary == "bpe" and not language.is_spaced:
            raise UserError(
                f"--vocabulary bpe needs spaces between words, but {language} is written without "
                "them; omit --vocabulary"
            )
