"""A folder of a Marian model, as the Hugging Face hub has it: model, vocabulary and languages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtkit.corpus.sentencepiece_subword import SentencePiecePair, SentencePieceSubword
from nmtkit.corpus.vocabulary import MAX_FILE_BYTES, split_tag
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.interchange.marian_config import DEFAULT_POSITIONS, read_config
from nmtkit.interchange.marian_settings import check_tokenizer, read_generation, warn_of_model_keys
from nmtkit.interchange.marian_weights import (
    WEIGHT_FILES,
    WEIGHT_INDEXES,
    read_weights,
    weights_file,
)
from nmtkit.store.records import DamagedError, file_sha256, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language, is_group, parse_tag
from nmtkit.utils.text import quote

CONFIG = "config.json"
GENERATION = "generation_config.json"  # files of earlier versions have it in config.json
TOKENIZER = "tokenizer_config.json"
VOCABULARY = "vocab.json"
TARGET_VOCABULARY = "target_vocab.json"  # of models with two vocabularies
SOURCE_PIECES = "source.spm"
TARGET_PIECES = "target.spm"
TOKEN_FILES = ("special_tokens_map.json", "added_tokens.json")
FILES = (
    *(CONFIG, GENERATION, TOKENIZER, VOCABULARY, TARGET_VOCABULARY, SOURCE_PIECES, TARGET_PIECES),
    *TOKEN_FILES,
    *WEIGHT_FILES,
    *WEIGHT_INDEXES,
)


def import_marian(
    folder: Path, langs: tuple[Language, Language] | None, preparation: TextPreparation
) -> ImportedModel:
    """Read a folder of a MarianMTModel.

    Args:
        folder: The folder. It may come from a stranger.
        langs: The languages of source and target; None: those in tokenizer_config.json.
        preparation: The text processing before subwords.

    Raises:
        UserError: A file cannot be read, or the model cannot be imported.
    """
    # To open a pipe or a device could wait forever.
    for path in sorted(folder.iterdir()):
        if path.name in FILES and path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; download the whole folder of the model")
    config_path = folder / CONFIG
    config = _read_object(config_path)
    tokenizer_path = folder / TOKENIZER
    tokenizer = _read_object(tokenizer_path) if tokenizer_path.exists() else {}
    # The model was trained on sources of this length; it may have more positions.
    max_length = tokenizer.get("model_max_length")
    max_positions = config.get("max_position_embeddings", DEFAULT_POSITIONS)
    if type(max_length) is int and type(max_positions) is int and 0 < max_length < max_positions:
        config["max_position_embeddings"] = max_length
    vocabulary = _read_vocabulary(folder)
    model = read_config(config_path, config, vocabulary)
    warn_of_model_keys(config_path, config)
    generation_path = folder / GENERATION if (folder / GENERATION).exists() else config_path
    symbol_ids = (model.pad_id, model.eos_id)
    generation = read_generation(
        generation_path, _read_object(generation_path), symbol_ids, model.never_ids
    )
    other_tokens = {}
    for name in TOKEN_FILES:
        if (folder / name).exists():
            other_tokens[folder / name] = _read_object(folder / name)
    tags = [piece for piece in model.pieces if split_tag(piece) == (piece, "")]
    check_tokenizer(tokenizer_path, tokenizer, other_tokens, tags)
    if langs is None:
        langs = _read_langs(tokenizer_path, tokenizer)

    # Both sentencepiece models have vocabularies of their own. Only the pieces in vocab.json have
    # ids, without counts; others are unknown.
    counts = dict.fromkeys(model.pieces, 0)
    try:
        src = SentencePieceSubword.read(folder / SOURCE_PIECES, counts)
        tgt = SentencePieceSubword.read(folder / TARGET_PIECES, counts)
    except DamagedError as error:
        raise UserError(f"{error.reason}; download the whole folder of the model") from None

    weights_path = weights_file(folder)
    hashes = {}
    for name in (CONFIG, generation_path.name, VOCABULARY, SOURCE_PIECES, TARGET_PIECES):
        hashes[name] = file_sha256(folder / name)
    hashes[weights_path.name] = file_sha256(weights_path)
    return ImportedModel(
        program="marian",
        description=model.description,
        weights=read_weights(weights_path, model, excludes_pad=generation.excludes_pad),
        subword=SentencePiecePair(src, tgt),
        tokenizations=preparation.tokenizations(langs, "none", aggressive_hyphens=False),
        decoding=generation.decoding,
        hashes=hashes,
    )


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that is an object."""
    try:
        content = json.loads(read_utf8(path, MAX_FILE_BYTES))
    except DamagedError as error:
        raise UserError(
            f"{error.reason}; pass the folder of a MarianMTModel with {CONFIG}, {VOCABULARY}, "
            f"{SOURCE_PIECES}, {TARGET_PIECES} and weights"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); download the file again") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object; download the file again")
    return content


def _read_vocabulary(folder: Path) -> dict[str, int]:
    """Read the ids of the pieces."""
    if (folder / TARGET_VOCABULARY).exists():
        raise UserError(
            f"{folder} has {TARGET_VOCABULARY}; only models with one vocabulary for both sides can "
            "be imported"
        )
    path = folder / VOCABULARY
    vocabulary = _read_object(path)
    for piece, id_ in vocabulary.items():
        if type(id_) is not int or not _is_line(piece):
            raise UserError(
                f"{path}: expected pieces with whole numbers as ids, got {quote(piece)} with "
                f"{quote(id_)}"
            )
    return vocabulary


def _is_line(text: str) -> bool:
    """Return whether a text is valid Unicode without a line feed."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\n" not in text


def _read_langs(path: Path, config: Mapping[str, Any]) -> tuple[Language, Language]:
    """Return the languages of a model.

    Args:
        path: The file tokenizer_config.json, for messages.
        config: Its contents, or nothing if there is no such file.

    Raises:
        UserError: A language is missing, or is a group of languages.
    """
    langs = []
    for key in ("source_lang", "target_lang"):
        tag = config.get(key)
        language = parse_tag(tag) if isinstance(tag, str) else None
        if language is None or is_group(language):
            kind = "not a language" if language is None else "a group of languages"
            raise UserError(
                f"{path} has {key} = {quote(tag)}, which is {kind}; pass --lang, such as --lang "
                "en-de"
            )
        langs.append(language)
    return langs[0], langs[1]
