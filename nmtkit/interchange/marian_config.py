"""The configuration and vocabulary of a model of Marian (`MarianMTModel`), such as OPUS-MT.

The files of Hugging Face's transformers may come from a stranger. Models with values that our own
model does not compute are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nmtkit.config.model import ModelConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.interchange.names import UNUSED
from nmtkit.model.weights import Description
from nmtkit.store.records import first_problem
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

# Keys of config.json with the default of transformers and the only value that our model computes.
# Some occur only in files of earlier versions.
FIXED: dict[str, tuple[Any, Any]] = {
    "model_type": (None, "marian"),
    "is_encoder_decoder": (True, True),
    "scale_embedding": (False, True),
    "static_position_embeddings": (True, True),
    "normalize_before": (False, False),
    "normalize_embedding": (False, False),
    "add_final_layer_norm": (False, False),
    "is_decoder": (False, False),
    "tie_encoder_decoder": (False, False),
    "pruned_heads": ({}, {}),
    "quantization_config": (None, None),
}
# Other names of keys in transformers.
ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}  # by the names of transformers
# Sizes by our names. The keys of both sides, encoder_X and decoder_X, must have the same value.
SIDE_KEYS = {"d_ff": "ffn_dim", "n_heads": "attention_heads"}
DEFAULT_POSITIONS = 1_024
MAX_UNNAMED_ROWS = 4_096  # rows without a piece, such as padding to a multiple of 128
LAYER_NORM_EPSILON = 1e-5  # the default of torch


@dataclass(frozen=True)
class MarianModel:
    """The contents of config.json, for a vocabulary.

    Attributes:
        description: The model.
        pieces: The subwords in the order of our ids, without special symbols.
        rows: Marian's ids in the order of our ids, without our `<pad>`.
        shares_sides: Whether the embeddings of source and target are the same matrix.
        ties_output: Whether the output matrix is the embedding of the target.
    """

    description: Description
    pieces: list[str]
    rows: list[int]
    shares_sides: bool
    ties_output: bool

    @property
    def pad_id(self) -> int:
        """Marian's id of the padding token and start symbol."""
        return self.rows[0]

    @property
    def eos_id(self) -> int:
        """Marian's id of `</s>`."""
        return self.rows[1]

    @property
    def never_ids(self) -> set[int]:
        """Marian's ids that our search never produces: padding, `<unk>`, rows without a piece."""
        n_symbols = 3
        return {self.rows[0], self.rows[2], *self.rows[n_symbols + len(self.pieces) :]}


def read_config(
    path: Path, config: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> MarianModel:
    """Check config.json and the vocabulary, and return the model that they describe.

    Args:
        path: The file config.json, for messages.
        vocabulary: The contents of vocab.json: the ids of the pieces.

    Raises:
        UserError: A value is invalid, or our model does not compute it.
    """
    for key, (default, supported) in FIXED.items():
        value = config.get(key, default)
        if value != supported:
            raise UserError(
                f"{path} has {key} = {quote(value)}; only {key} = {quote(supported)} can be "
                "imported"
            )
    for alias, key in ALIASES.items():
        if config.get(alias) not in (None, config.get(key)):
            raise UserError(
                f"{path} has {alias} = {quote(config[alias])} and {key} = "
                f"{quote(config.get(key))}, which are the same; correct one of them"
            )
    activation = config.get("activation_function", "gelu")
    if activation not in [*ACTIVATIONS]:  # it may be unhashable
        raise UserError(
            f"{path} has activation_function = {quote(activation)}; only "
            f"{', '.join(ACTIVATIONS)} can be imported"
        )
    # Our model has the same sizes on both sides, except for the number of layers.
    sizes = {"n_layers": config.get("encoder_layers")}
    if config.get("decoder_layers") != sizes["n_layers"]:
        sizes["n_decoder_layers"] = config.get("decoder_layers") or 0
    for name, key in SIDE_KEYS.items():
        encoder, decoder = config.get(f"encoder_{key}"), config.get(f"decoder_{key}")
        if encoder != decoder:
            raise UserError(
                f"{path} has encoder_{key} = {quote(encoder)} and decoder_{key} = "
                f"{quote(decoder)}; only models with the same value on both sides can be imported"
            )
        sizes[name] = encoder
    d_model = config.get("d_model")
    n_heads = sizes["n_heads"]
    if type(d_model) is not int or type(n_heads) is not int or n_heads < 1 or d_model % n_heads:
        raise UserError(
            f"{path} has d_model = {quote(d_model)} and encoder_attention_heads = "
            f"{quote(n_heads)}; d_model must be a multiple of the number of heads"
        )

    pieces, rows = _rows(path, config, vocabulary)
    shares_sides = config.get("share_encoder_decoder_embeddings", True) is True
    ties_output = config.get("tie_word_embeddings", True) is True
    values = {
        **sizes,
        "d_model": d_model,
        "d_k": d_model // n_heads,
        "d_v": d_model // n_heads,
        "attention_bias": True,
        "activation": ACTIVATIONS[activation],
        "output_bias": True,
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "positions": "sinusoid",
        "max_positions": config.get("max_position_embeddings", DEFAULT_POSITIONS),
        "norm": "post",
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "tie_embeddings": shares_sides and ties_output,
        # For any smaller vocabulary, `embedding_rows` returns this number of rows: the recipe of a
        # fine-tuning has the rows without a piece, too.
        "vocabulary_multiple": 1 + len(rows),
    }
    try:
        model = ModelConfig.model_validate(values)
        description = Description(config=model, n_rows=1 + len(rows))
    except ValidationError as error:
        raise UserError(
            f"{path} has a model that cannot be imported ({first_problem(error)})"
        ) from None
    return MarianModel(description, pieces, rows, shares_sides, ties_output)


def _rows(
    path: Path, config: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> tuple[list[str], list[int]]:
    """Return the pieces in the order of our ids, and Marian's ids in this order.

    Args:
        path: The file config.json, for messages.
        vocabulary: The ids of the pieces.
    """
    n_rows = config.get("vocab_size")
    decoder_rows = config.get("decoder_vocab_size")
    max_rows = len(vocabulary) + MAX_UNNAMED_ROWS
    if type(n_rows) is not int or not 0 < n_rows <= max_rows:
        raise UserError(
            f"{path} has vocab_size = {quote(n_rows)}, but vocab.json next to it has "
            f"{len(vocabulary):,} pieces; download both from the same model"
        )
    if decoder_rows not in (None, n_rows):
        raise UserError(
            f"{path} has vocab_size = {n_rows:,} and decoder_vocab_size = {quote(decoder_rows)}; "
            "only models with one vocabulary for both sides can be imported"
        )
    symbol_ids = _symbol_ids(path, config, vocabulary)

    names: dict[int, str] = {}
    for piece, id_ in vocabulary.items():
        if not 0 <= id_ < n_rows or id_ in names:
            raise UserError(
                f"vocab.json next to {path} gives {quote(piece)} the id {id_:,}, which is not a "
                f"new id below vocab_size = {n_rows:,}"
            )
        names[id_] = piece

    # Pieces that sentencepiece never produces are not part of our vocabulary. Their rows remain,
    # since they count in the softmax.
    pieces = []
    piece_ids = []
    unused_ids = []
    for id_ in range(n_rows):
        name = names.get(id_)
        if id_ in symbol_ids:
            continue
        if name is None or name in SPECIALS or UNUSED.fullmatch(name):
            unused_ids.append(id_)
        else:
            pieces.append(name)
            piece_ids.append(id_)
    return pieces, [*symbol_ids, *piece_ids, *unused_ids]


def _symbol_ids(path: Path, config: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[int]:
    """Return Marian's ids of its padding token, `</s>` and `<unk>`: our ids from 1 to 3.

    Args:
        path: The file config.json, for messages.
        vocabulary: The ids of the pieces.
    """
    start_id = config.get("decoder_start_token_id")
    pad_id = config.get("pad_token_id")
    if start_id != pad_id:
        raise UserError(
            f"{path} has decoder_start_token_id = {quote(start_id)} and pad_token_id = "
            f"{quote(pad_id)}; only models that start from the padding token can be imported"
        )
    # The ids of the symbols are in both files, except for <unk>.
    symbols = {"<pad>": start_id, "</s>": config.get("eos_token_id"), "<unk>": None}
    symbol_ids = []
    for symbol, id_ in symbols.items():
        found = vocabulary.get(symbol)
        if found is None:
            raise UserError(f"vocab.json next to {path} has no {symbol}; download the whole folder")
        if id_ is not None and id_ != found:
            raise UserError(
                f"{path} gives {symbol} the id {quote(id_)}, and vocab.json next to it the id "
                f"{found:,}; download both from the same model"
            )
        symbol_ids.append(found)
    assert (PAD_ID, BOS_ID, EOS_ID, UNK_ID) == (0, 1, 2, 3)  # the order of `symbols`
    return symbol_ids
