"""The parent of a recipe: the bundle that it fine-tunes, or whose vocabulary it takes."""

import json
from pathlib import Path
from typing import Any

from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.errors import UserError, shortened
from nmtkit.recipe import Recipe

TOKENIZER_KEYS = ("normalize_punctuation", "lowercase", "tokenizer", "aggressive_hyphens")


def open_parent(path: str, recipe: Recipe) -> Bundle:
    """Open the bundle at `path`, which may come from a stranger, and compare it with the recipe.

    Its weights are not read yet.

    Raises:
        UserError: It is not a bundle, is damaged, or was made with other languages, another
            tokenization or, if the recipe fine-tunes it, another model.
    """
    bundle, corpus = open_bundle(Path(path)), recipe.corpus
    for key, lang, side in (
        ("src_lang", corpus.src_lang.code, bundle.text.src),
        ("tgt_lang", corpus.tgt_lang.code, bundle.text.tgt),
    ):
        ours = {key: lang, **{each: getattr(corpus, each) for each in TOKENIZER_KEYS}}
        if side is bundle.text.tgt and corpus.linearization:
            ours["tokenizer"] = corpus.linearization
        theirs = {key: side.lang, **{each: getattr(side, each) for each in TOKENIZER_KEYS}}
        _compare(path, "corpus", ours, theirs)
    if path == recipe.training.start_from:
        update = recipe.model.model_dump(include={"dropout", "attention_dropout"})
        config = bundle.description.config.model_copy(update=update)
        _compare(path, "model", recipe.model.model_dump(), config.model_dump())
    return bundle


def _compare(path: str, section: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare a section of the recipe with what the bundle at `path` was made with.

    Raises:
        UserError: They differ.
    """
    if differing := [key for key in ours if ours[key] != theirs[key]]:
        raise UserError(
            f"the bundle {path} was made with [{section}] {_shown(theirs, differing)}, but the "
            f"recipe has {_shown(ours, differing)}; change the recipe, or choose another bundle"
        )


def _shown(values: dict[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key} = {shortened(json.dumps(values[key]))}" for key in keys)
