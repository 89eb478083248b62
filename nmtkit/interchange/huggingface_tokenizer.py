"""Tokenizers for Hugging Face's transformers, with the ids of the models in `huggingface`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtkit.config.model import ModelConfig
from nmtkit.corpus.sentencepiece_subword import SentencePiecePair, SentencePieceSubword
from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID, SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.interchange.huggingface import choose_layout
from nmtkit.interchange.names import check_symbols
from nmtkit.store.records import write_json

BYTE = re.compile("<0x..>$")  # a piece

# tokenizer_config.json
TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", "attention_mask"],
    "clean_up_tokenization_spaces": False,
    "split_special_tokens": True,
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}

# The whitespace of Python's `str.split`, as a regular expression of the Rust library.
_SPACES = "[\t-\r\u001c-\u001f \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
# Append </s> to a sentence or a pair of sentences.
_APPEND_EOS: dict[str, Any] = {
    "type": "TemplateProcessing",
    "single": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "pair": [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    ],
    "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
}

# tokenizer.json, without the vocabulary: of a sentencepiece model ..
SENTENCEPIECE_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "normalizer": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "},
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            {"type": "Replace", "pattern": {"Regex": "▁+$"}, "content": ""},
        ],
    },
    "post_processor": _APPEND_EOS,
    "decoder": {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "},
            {"type": "Replace", "pattern": {"Regex": "^ | $"}, "content": ""},
        ],
    },
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True},
}
# .. and of subwords that are separated by spaces
SUBWORD_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "Removed",
        "invert": False,
    },
    "post_processor": _APPEND_EOS,
    "model": {"type": "WordLevel", "unk_token": "<unk>"},
}


def write_tokenizer(
    folder: Path,
    subword: Subword,
    config: ModelConfig,
    n_rows: int,
    max_subwords: int,
    langs: tuple[str, str],
) -> None:
    """Write a tokenizer as `AutoTokenizer.from_pretrained` loads it, with the ids of the model.

    With our sentencepieces, and with the two models of Marian, it reads the output of
    `Tokenization.tokenize`, or raw text if that only collapses spaces; else subwords separated by
    spaces. "</s>" in a text is not a symbol, except for Marian.

    Args:
        folder: An existing folder.
        n_rows: Number of rows of its embeddings.
        max_subwords: Maximum number of subwords of a source, EOS included.
        langs: Codes of the languages of source and target.
    """
    # Rows without a piece get names too: the library requires one for each id.
    layout = choose_layout(config, n_rows)
    check_symbols(subword, "tokenizers of Hugging Face")
    pieces = [f"<unused {id_}>" for id_ in range(layout.vocab_size)]
    pieces[: subword.n_tokens] = subword.pieces(range(subword.n_tokens))
    for id_ in (PAD_ID, BOS_ID):
        pieces[id_] = f"<unused {id_}>"
    pieces[layout.pad_id] = SPECIALS[PAD_ID]
    values = {**TOKENIZER_CONFIG, "model_max_length": max_subwords}
    if isinstance(subword, SentencePiecePair):
        subword.save(folder)
        values |= {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False}
        values["source_lang"], values["target_lang"] = langs
        write_json(folder / "tokenizer_config.json", values)
        write_json(folder / "vocab.json", {piece: id_ for id_, piece in enumerate(pieces)})
        return
    write_json(folder / "tokenizer_config.json", values)
    tokenizer = SUBWORD_TOKENIZER if subword.counts else SENTENCEPIECE_TOKENIZER
    vocabulary = {piece: id_ for id_, piece in enumerate(pieces)}
    model = {**tokenizer["model"], "vocab": vocabulary}
    if isinstance(subword, SentencePieceSubword) and not subword.counts:
        model["merges"] = _merges(pieces)
        if subword.protected:
            # Text is split at protected tokens, and these are looked up as a whole.
            model["ignore_merges"] = True
            longest_first = sorted(subword.protected, key=len, reverse=True)
            pattern = "|".join(re.escape(token) for token in longest_first)
            splitter = {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            }
            tokenizer = {**tokenizer, "pre_tokenizer": splitter}
    write_json(folder / "tokenizer.json", {**tokenizer, "model": model})


def _merges(pieces: Sequence[str]) -> list[str]:
    """Return the pairs that sentencepiece merges, in the order in which pieces were learned.

    Args:
        pieces: The vocabulary. A piece may result from several pairs.
    """
    known = {piece for piece in pieces[len(SPECIALS) :] if not BYTE.match(piece)}
    merges = []
    for piece in pieces:
        if piece not in known:
            continue
        # The model records pieces, not merges: any two that form the piece may be merged.
        for k in range(1, len(piece)):
            first, second = piece[:k], piece[k:]
            if first in known and second in known:
                merges.append(f"{first} {second}")
    return merges
