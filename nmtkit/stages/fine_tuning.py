"""The parent of a recipe: the bundle that it fine-tunes, or whose vocabulary it takes."""

from pathlib import Path
from typing import Any

from nmtkit.config.recipe import Recipe
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.model.weights import inference_settings
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import describe_differences

TOKENIZER_KEYS = ("normalize_punctuation", "lowercase", "tokenizer", "aggressive_hyphens")


def open_parent(path: str, recipe: Recipe) -> Bundle:
    """Open the parent of a recipe, and check that the recipe has its tokenization and model.

    Args:
        path: The bundle. Its content is not trusted.
        recipe: The recipe, with this path in [subword] or [training].

    Raises:
        UserError: A value differs, or the bundle is damaged.
    """
    bundle = open_bundle(Path(path))
    corpus = recipe.corpus
    # Text that is tokenized otherwise would not fit the vocabulary.
    src = vars(bundle.text.src)
    tgt = vars(bundle.text.tgt)
    tokenizer = {key: getattr(corpus, key) for key in TOKENIZER_KEYS}
    _check_same("corpus", path, {"src_lang": corpus.src_lang.code, **tokenizer}, src, "src_lang")
    tokenizer["tokenizer"] = corpus.linearization or corpus.tokenizer
    _check_same("corpus", path, {"tgt_lang": corpus.tgt_lang.code, **tokenizer}, tgt, "tgt_lang")
    # A recipe that only takes the vocabulary may have another model.
    if path == recipe.training.start_from:
        _check_same(
            "model",
            path,
            inference_settings(recipe.model),
            inference_settings(bundle.description.config),
        )
    return bundle


def _check_same(
    section: str,
    path: str,
    ours: dict[str, Any],
    theirs: dict[str, Any],
    language_key: str | None = None,
) -> None:
    """Check that a bundle has the values of a recipe.

    Args:
        path: The bundle, for the message.
        ours: The values of the recipe.
        theirs: The values of the bundle. It may have more keys.
        language_key: The key of the language in the recipe; in the bundle, it is "lang".

    Raises:
        UserError: A value differs.
    """
    if language_key is not None:
        theirs = {**theirs, language_key: theirs["lang"]}
    differences = describe_differences(ours, theirs)
    if differences is not None:
        raise UserError(
            f"the bundle {path} was trained with [{section}] {differences[1]}, but the recipe has "
            f"{differences[0]}; change the recipe, or use another bundle"
        )
