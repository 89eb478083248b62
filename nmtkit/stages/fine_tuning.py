"""The parent of a recipe: the bundle that it fine-tunes, or whose vocabulary it takes."""

from pathlib import Path
from typing import Any

from nmtkit.config.recipe import Recipe
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.model.description import computed
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import describe_differences

TOKENIZER_KEYS = ("normalize_punctuation", "lowercase", "tokenizer", "aggressive_hyphens")


def open_parent(path: str, recipe: Recipe) -> Bundle:
    """Open the bundle at `path`, which may come from a stranger, and compare it with the recipe."""
    bundle, corpus = open_bundle(Path(path)), recipe.corpus
    src, tgt = vars(bundle.text.src), vars(bundle.text.tgt)
    both = {key: getattr(corpus, key) for key in TOKENIZER_KEYS}
    of_tgt = {**both, "tokenizer": corpus.linearization or corpus.tokenizer}
    compared: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("corpus", {"src_lang": corpus.src_lang.code, **both}, {"src_lang": src["lang"], **src}),
        ("corpus", {"tgt_lang": corpus.tgt_lang.code, **of_tgt}, {"tgt_lang": tgt["lang"], **tgt}),
    ]
    if path == recipe.training.start_from:
        compared.append(("model", computed(recipe.model), computed(bundle.description.config)))
    for section, ours, theirs in compared:
        if differences := describe_differences(ours, theirs):
            raise UserError(
                f"the bundle {path} was made with [{section}] {differences[1]}, but the recipe has "
                f"{differences[0]}; change the recipe, or choose another bundle"
            )
    return bundle
