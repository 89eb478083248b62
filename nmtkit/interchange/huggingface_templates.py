"""The constant parts of the files that transformers reads: configs and tokenizer pipelines."""

from typing import Any

# config.json of the two classes
CONFIGS: dict[str, dict[str, Any]] = {
    "marian": {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "forced_eos_token_id": None,
        "scale_embedding": True,
    },
    "fsmt": {
        "architectures": ["FSMTForConditionalGeneration"],
        "model_type": "fsmt",
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "langs": [],
        "scale_embedding": True,
        "tie_word_embeddings": False,
    },
}

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
