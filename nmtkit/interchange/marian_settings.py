"""Settings of transformers in the files of a model of Marian, and what import does with them.

The keys are those of transformers 5: `GenerationConfig`, `MarianConfig` and `MarianTokenizer`. What
our search has is honoured. What would make the result another model is refused. Any other value
that changes translations is reported in one warning for each file, and so are unknown keys.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nmtkit.config.model import PAPERS_DECODING, DecodingConfig
from nmtkit.store.records import first_problem
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote


def _keys(names: str) -> set[str]:
    return set(names.split())


# Keys of generation_config.json that `read_generation` reads.
HONOURED_GENERATION = {
    "num_beams",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "renormalize_logits",
    "bad_words_ids",
    "suppress_tokens",
    "forced_bos_token_id",
    "force_bos_token_to_be_generated",
    "forced_decoder_ids",
    "forced_eos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "pad_token_id",
}
# Keys that change translations, which our search does not have, with the values that change
# nothing. None, [] and {} change nothing either.
OTHER_GENERATION: dict[str, tuple[Any, ...]] = {
    "min_length": (0, 1),  # the start counts
    "min_new_tokens": (0,),
    "early_stopping": (False, "never"),
    "max_time": (),
    "stop_strings": (),
    "do_sample": (False,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "begin_suppress_tokens": (),
    "sequence_bias": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
    "token_healing": (False,),
    "num_return_sequences": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "constraints": (),
    "force_words_ids": (),
    "penalty_alpha": (0.0,),
    "dola_layers": (),
}
# Keys that change nothing: sampling, which do_sample reports; memory and speed; the outputs other
# than tokens; NaN, which the weights do not have; an assistant model, which a folder does not have.
NEUTRAL_GENERATION = _keys(
    "temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff "
    "use_cache cache_implementation cache_config max_cache_len low_memory prefill_chunk_size "
    "compile_config disable_compile continuous_batching_config use_mtp "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate "
    "return_legacy_cache remove_invalid_values bos_token_id is_assistant num_assistant_tokens "
    "num_assistant_tokens_schedule assistant_confidence_threshold prompt_lookup_num_tokens "
    "max_matching_ngram_size assistant_early_exit assistant_lookbehind target_lookbehind "
    "assistant_ensemble_weight speculation_type "
    "_from_model_config _commit_hash transformers_version"
)

# Keys of config.json that `marian_config` reads, and keys that change nothing after training.
MODEL_KEYS = _keys(
    "model_type is_encoder_decoder scale_embedding static_position_embeddings normalize_before "
    "normalize_embedding add_final_layer_norm is_decoder tie_encoder_decoder pruned_heads "
    "quantization_config activation_function encoder_layers decoder_layers encoder_ffn_dim "
    "decoder_ffn_dim encoder_attention_heads decoder_attention_heads d_model vocab_size "
    "decoder_vocab_size share_encoder_decoder_embeddings tie_word_embeddings dropout "
    "attention_dropout max_position_embeddings "
    "num_hidden_layers hidden_size num_attention_heads"  # other names of keys
)
NEUTRAL_MODEL_KEYS = _keys(
    "architectures _name_or_path name_or_path _num_labels num_labels id2label label2id "
    "problem_type finetuning_task activation_dropout classif_dropout classifier_dropout "
    "encoder_layerdrop decoder_layerdrop init_std extra_pos_embeddings add_bias_logits output_past "
    "total_flos gradient_checkpointing torch_dtype dtype torchscript use_bfloat16 use_return_dict "
    "return_dict sep_token_id cross_attention_hidden_size add_cross_attention "
    "chunk_size_feed_forward tokenizer_class do_blenderbot_90_layernorm attn_implementation "
    "_attn_implementation_autoset tf_legacy_loss is_assistant"
)

# The special tokens of tokenizer_config.json that our search needs.
SYMBOLS = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
# Keys of tokenizer_config.json that change translations, with the values that change nothing.
OTHER_TOKENIZER: dict[str, tuple[Any, ...]] = {
    "clean_up_tokenization_spaces": (False,),
    "sp_model_kwargs": (),
    "tokenizer_class": ("MarianTokenizer",),
}
NEUTRAL_TOKENIZER = _keys(
    "source_lang target_lang model_max_length separate_vocabs target_vocab_file source_spm "
    "target_spm vocab name_or_path special_tokens_map_file tokenizer_file processor_class backend "
    "is_local local_files_only use_fast cache_dir padding_side truncation_side padding truncation "
    "max_length model_input_names do_lower_case split_special_tokens return_tensors "
    "model_specific_special_tokens"
)
TOKEN_KEYS = ("bos_token", "sep_token", "cls_token", "mask_token")
TOKEN_LISTS = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True)
class Generation:
    """The settings of the search of a model.

    Attributes:
        decoding: Those that our search has.
        excludes_pad: Whether the padding token has no part in the softmax (renormalize_logits).
    """

    decoding: DecodingConfig
    excludes_pad: bool


def warn_of_model_keys(path: Path, config: Mapping[str, Any]) -> None:
    """Warn of unknown keys of config.json.

    Settings of the search are read by `read_generation` or, if generation_config.json exists,
    ignored by transformers.
    """
    known = MODEL_KEYS | NEUTRAL_MODEL_KEYS | NEUTRAL_GENERATION | HONOURED_GENERATION
    unknown = config.keys() - known - OTHER_GENERATION.keys()
    _warn(path, {key: value for key, value in config.items() if key in unknown}, {})


def read_generation(
    path: Path, settings: Mapping[str, Any], symbol_ids: Sequence[int], never_ids: Collection[int]
) -> Generation:
    """Return the settings of the search in generation_config.json or config.json.

    Args:
        path: The file, for messages.
        symbol_ids: Marian's ids of the padding token and of `</s>`.
        never_ids: Marian's ids that our search never produces.

    Raises:
        UserError: A value is invalid, or makes the result another model.
    """
    pad_id, eos_id = symbol_ids
    is_legacy = settings.get("_from_model_config") or path.name == "config.json"
    if is_legacy and settings.get("force_bos_token_to_be_generated"):
        settings = {**settings, "forced_bos_token_id": settings.get("bos_token_id")}
    for key in ("forced_bos_token_id", "forced_decoder_ids"):
        if settings.get(key) not in (None, []):
            raise UserError(
                f"{path} has {key} = {quote(settings[key])}: all translations would begin with "
                "the same token; only models without it can be imported"
            )
    expected = {"decoder_start_token_id": pad_id, "pad_token_id": pad_id, "eos_token_id": eos_id}
    for key, id_ in expected.items():
        # A list of one id is the id.
        if settings.get(key) not in (None, id_, [id_]):
            raise UserError(
                f"{path} has {key} = {quote(settings[key])}, but the model has {id_}; only models "
                "with the same value in both can be imported"
            )

    reported = dict(settings)
    for key in HONOURED_GENERATION:
        reported.pop(key, None)
    # Tokens that our search never produces need not be forbidden.
    excludes_pad = False
    for key, pad in (("bad_words_ids", [pad_id]), ("suppress_tokens", pad_id)):
        forbidden = settings.get(key)
        if isinstance(forbidden, list):
            excludes_pad |= pad in forbidden
            never = [[id_] for id_ in never_ids] if key == "bad_words_ids" else [*never_ids]
            forbidden = [entry for entry in forbidden if entry not in never]
        reported[key] = forbidden
    last = settings.get("forced_eos_token_id")
    if last not in (None, eos_id, [eos_id]):
        reported["forced_eos_token_id"] = last
    if path.name == "config.json":
        known = OTHER_GENERATION.keys() | {"bad_words_ids", "suppress_tokens"}
        known |= {"forced_eos_token_id"}
        reported = {key: value for key, value in reported.items() if key in known}
    for key in NEUTRAL_GENERATION:
        reported.pop(key, None)
    _warn(path, reported, OTHER_GENERATION)

    decoding = _decoding(path, settings, ends_with_eos=last is not None)
    # Like transformers, this does not accept 1 for true.
    return Generation(decoding, excludes_pad and settings.get("renormalize_logits") is True)


def _decoding(path: Path, settings: Mapping[str, Any], *, ends_with_eos: bool) -> DecodingConfig:
    """Return the settings of beam search.

    Args:
        path: The file, for messages.
        ends_with_eos: Whether `generate` ends a translation of maximum length with an EOS.
    """
    # Both limits count the EOS, and `max_length` also the start symbol; ours counts neither.
    key = "max_length" if settings.get("max_new_tokens") is None else "max_new_tokens"
    n_not_counted = (key == "max_length") + ends_with_eos
    max_length = settings.get(key)
    if max_length is None:
        progress.warn(
            f"{path} has no max_length: `generate` of transformers ends each translation after 20 "
            "tokens, but nmtkit does not"
        )
    elif type(max_length) is not int or max_length <= n_not_counted:
        raise UserError(f"{path} has an invalid search ({key} = {quote(max_length)})")
    else:
        max_length -= n_not_counted
    beam_size = settings.get("num_beams")
    length_penalty = settings.get("length_penalty")
    values = {
        "beam_size": 1 if beam_size is None else beam_size,
        "length_penalty": 1.0 if length_penalty is None else length_penalty,
        # transformers and Marian (`normalize`) divide by length^alpha, as fairseq does.
        "length_penalty_formula": "fairseq",
        "max_extra_tokens": PAPERS_DECODING.max_extra_tokens,
        "max_length": max_length,
    }
    try:
        return DecodingConfig.model_validate(values)
    except ValidationError as error:
        problem = first_problem(error).replace("beam_size", "num_beams")
        raise UserError(f"{path} has an invalid search ({problem})") from None


def check_tokenizer(
    path: Path,
    config: Mapping[str, Any],
    other_tokens: Mapping[Path, Mapping[str, Any]],
    tags: Collection[str],
) -> None:
    """Check the settings of tokenizer_config.json, and warn of those that we do not have.

    Args:
        path: The file, for messages.
        other_tokens: The contents of special_tokens_map.json and added_tokens.json, if they exist.
        tags: The language tags of the vocabulary.

    Raises:
        UserError: A special token is not that of Marian, or the vocabularies are separate.
    """
    if config.get("separate_vocabs"):
        raise UserError(
            f"{path} has separate_vocabs = {quote(config['separate_vocabs'])}; only models with "
            "one vocabulary for both sides can be imported"
        )
    added: dict[Path, list[str]] = {}
    for place, tokens in {path: config, **other_tokens}.items():
        for key, symbol in SYMBOLS.items():
            token = _content(tokens.get(key, symbol))
            if token not in (symbol, None):
                raise UserError(
                    f"{place} has {key} = {quote(token)}; only models with {symbol} can be imported"
                )
        found = [tokens.get(key) for key in TOKEN_KEYS]
        for key in TOKEN_LISTS:
            listed = tokens.get(key)
            # By the name of its attribute, or one token instead of a list.
            listed = [*listed.values()] if isinstance(listed, dict) else listed
            found += listed if isinstance(listed, list) else [listed]
        decoder = tokens.get("added_tokens_decoder")
        if isinstance(decoder, dict):
            found += decoder.values()
        if place.name == "added_tokens.json":
            found += tokens
        # Tags and the symbols are whole tokens here too.
        contents = [_content(token) for token in found]
        texts = {str(content) for content in contents if content is not None}
        added[place] = sorted(texts.difference(SYMBOLS.values(), tags))
    for place, names in added.items():
        if names:
            progress.warn(
                f"{place} adds the tokens {quote(names)}: transformers never splits them, but "
                "nmtkit reads them as any other text"
            )

    known_keys = NEUTRAL_TOKENIZER | SYMBOLS.keys() | {*TOKEN_KEYS, *TOKEN_LISTS}
    known_keys |= {"added_tokens_decoder"}
    reported = {key: value for key, value in config.items() if key not in known_keys}
    _warn(path, reported, OTHER_TOKENIZER)


def _content(token: object) -> object:
    """Return the text of a token. Some versions of transformers write it with properties."""
    return token.get("content") if isinstance(token, dict) else token


def _warn(path: Path, settings: Mapping[str, Any], defaults: Mapping[str, tuple[Any, ...]]) -> None:
    """Warn of settings that differ from their defaults, all at once.

    Args:
        settings: Settings that import does not honour.
        defaults: Values that change nothing.
    """
    listed = []
    for key, value in sorted(settings.items()):
        if value not in (None, [], {}, *defaults.get(key, ())):
            listed.append(f"{key} = {quote(value)}")
    if listed:
        progress.warn(
            f"{path} has {', '.join(listed)}: nmtkit does not have "
            f"{'this setting' if len(listed) == 1 else 'these settings'}, and may translate "
            "otherwise than transformers"
        )
