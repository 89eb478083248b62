"""Models of Marian in the format of Hugging Face's transformers (`MarianMTModel`), such as OPUS-MT.

This is the reverse of the export in `huggingface`: the dimensions of vectors are reordered
(`dimension_order`), and the rows of the embeddings get our ids. The decoder of Marian starts from
its padding token, whose row becomes that of our `<s>`.

Deviation: our `<pad>`, which Marian does not have, gets a row of zeros and a bias of -100, so that
its probability is 0 in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from nmtkit.config.recipe import PAPERS_DECODING, DecodingConfig, ModelConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.interchange.dimension_order import EMBEDDINGS, alternating, reorder, sines_first_order
from nmtkit.interchange.names import UNUSED, part_names
from nmtkit.interchange.restricted_load import load
from nmtkit.model.description import Description
from nmtkit.model.transformer import sinusoids
from nmtkit.model.weights import shapes
from nmtkit.store.records import first_problem
from nmtkit.store.tensors import load_tensors, read_header
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
    "forced_bos_token_id": (None, None),
}
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}  # by the names of transformers
# Sizes by our names. The keys of both sides, encoder_X and decoder_X, must have the same value.
SIDE_KEYS = {"n_layers": "layers", "d_ff": "ffn_dim", "n_heads": "attention_heads"}
DEFAULT_POSITIONS = 1_024
MAX_UNNAMED_ROWS = 4_096  # rows without a piece, such as padding to a multiple of 128
LAYER_NORM_EPSILON = 1e-5  # the default of torch
NEVER_BIAS = -100.0  # the bias of our <pad>: exp(-100) is 0 next to 1 in float32
MAX_HEADER_BYTES = 2**22  # of a safetensors file; 1,000 tensors take 100 kB

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
BIAS = "final_logits_bias"
# Our names of the embeddings, with Marian's names. If some are tied, a file may have only one of
# them.
SHARED = "model.shared.weight"
EMBEDDING_NAMES = {
    "src_embedding.weight": "model.encoder.embed_tokens.weight",
    "tgt_embedding.weight": "model.decoder.embed_tokens.weight",
    "_output": "lm_head.weight",
}
# Largest difference of a stored table of positions, which may be rounded to 16 bits, from ours.
POSITION_TOLERANCE = 1e-2


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


def read_config(
    path: Path, config: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> MarianModel:
    """Check config.json and the vocabulary, and return the model that they describe.

    Args:
        path: The file config.json, for messages.
        config: Its contents.
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
    activation = config.get("activation_function", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(
            f"{path} has activation_function = {quote(activation)}; only "
            f"{', '.join(ACTIVATIONS)} can be imported"
        )
    # Our model has the same sizes on both sides.
    sizes = {}
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
        # For any smaller vocabulary, `embedding_rows` returns this number of rows, so that the
        # recipe of a fine-tuning has the rows without a piece too.
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
        config: Its contents.
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

    # Pieces that sentencepiece never produces are not part of our vocabulary. Their rows remain,
    # since they count in the softmax.
    names: dict[int, str] = {}
    for piece, id_ in vocabulary.items():
        if not 0 <= id_ < n_rows or id_ in names:
            raise UserError(
                f"vocab.json next to {path} gives {quote(piece)} the id {id_:,}, which is not a "
                f"new id below vocab_size = {n_rows:,}"
            )
        names[id_] = piece
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
    assert (PAD_ID, BOS_ID, EOS_ID, UNK_ID) == (0, 1, 2, 3)  # the order of `symbols`
    return pieces, [*symbol_ids, *piece_ids, *unused_ids]


def read_decoding(path: Path, config: Mapping[str, Any], start_id: int) -> DecodingConfig:
    """Return the settings of the search in generation_config.json or config.json.

    Args:
        path: The file, for messages.
        config: Its contents.
        start_id: Marian's id of the padding token.

    Raises:
        UserError: A value is invalid, or forbids a subword.
    """
    # Marian begins decoding with the padding token, and must not generate it.
    forbidden = config.get("bad_words_ids") or [[start_id]]
    if forbidden != [[start_id]]:
        raise UserError(
            f"{path} has bad_words_ids = {quote(forbidden)}; only [[{start_id}]], the padding "
            "token, can be imported"
        )
    values = {
        "beam_size": config.get("num_beams", PAPERS_DECODING.beam_size),
        "length_penalty": config.get("length_penalty", 1.0),
        # transformers and Marian (`normalize`) divide by length^alpha, as fairseq does.
        "length_penalty_formula": "fairseq",
        "max_extra_tokens": PAPERS_DECODING.max_extra_tokens,
    }
    try:
        return DecodingConfig.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{path} has an invalid search ({first_problem(error)})") from None


def weights_file(folder: Path) -> Path:
    """Return the file of the weights in a folder.

    Raises:
        UserError: It has none.
    """
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder} has no {' or '.join(WEIGHT_FILES)}; download the whole folder")


def read_weights(path: Path, model: MarianModel) -> dict[str, Tensor]:
    """Read the weights of a model, by our names.

    Args:
        path: A safetensors file, or a file of `torch.save`. It may come from a stranger.
        model: The model.

    Raises:
        UserError: The file cannot be read, or has other weights.
    """
    # The header is bounded before the library parses it.
    if path.suffix == ".safetensors":
        read_header(path, MAX_HEADER_BYTES)
        found = load_tensors(path)
    else:
        found = load(path, set(), ())
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a dictionary of weights")
    for name, weight in found.items():
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            raise UserError(f"{path}: {quote(name)} is not a tensor of floating-point numbers")

    _check_positions(path, found, model)
    config = model.description.config
    order = alternating(config.d_model)
    rows = torch.tensor(model.rows)
    weights = {}
    used = set()
    for name, shape in shapes(config, model.description.n_rows):
        their_names = _marian_names(name, found, model)
        used.update(their_names)
        if name == "output_bias":
            stored = found.get(BIAS)
            theirs = torch.zeros(len(rows)) if stored is None else stored.flatten()
            # Label smoothing counts all logits: -1e4 or -inf would dominate the loss.
            theirs = theirs.clamp_min(NEVER_BIAS)
        else:
            parts = []
            for part in their_names:
                if part not in found:
                    raise UserError(f"{path} has no {part}; it is not a complete MarianMTModel")
                parts.append(found[part])
            # Of one part, no copy is needed.
            theirs = parts[0] if len(parts) == 1 else torch.cat(parts)
        is_by_row = name in EMBEDDINGS or name == "output_bias"
        expected = (shape[0] - 1, *shape[1:]) if is_by_row else shape
        if theirs.shape != expected:
            raise UserError(
                f"{path}: {' and '.join(their_names)} has shape {tuple(theirs.shape)}, but "
                f"config.json needs {tuple(expected)}"
            )
        if is_by_row:
            # Our <pad> comes first, then Marian's rows in the order of our ids.
            fill = NEVER_BIAS if name == "output_bias" else 0.0
            first = theirs.new_full((1, *shape[1:]), fill)
            theirs = torch.cat([first, theirs[rows]])
        weights[name] = reorder(name, theirs.float(), order).contiguous()
    _check_unused(path, found, used)
    return weights


def _marian_names(name: str, found: Mapping[str, Tensor], model: MarianModel) -> list[str]:
    """Return Marian's names of the parts of one of our weights.

    Args:
        name: Our name.
        found: The weights in the file, by Marian's names. Of tied ones, it may have only one.
        model: The model.
    """
    if name == "output_bias":
        return [BIAS]
    if name not in EMBEDDING_NAMES:
        return [f"model.{part}" for part in part_names(name)]
    # Tied weights may be stored once, under the name of any of them.
    candidates = [EMBEDDING_NAMES[name]]
    if model.description.config.tie_embeddings:
        candidates = [SHARED, *EMBEDDING_NAMES.values()]
    elif model.shares_sides:
        candidates.append(SHARED)
    elif model.ties_output and name != "src_embedding.weight":
        candidates += [EMBEDDING_NAMES["tgt_embedding.weight"], EMBEDDING_NAMES["_output"]]
    for candidate in candidates:
        if candidate in found:
            return [candidate]
    return candidates[:1]


def _check_positions(path: Path, found: dict[str, Tensor], model: MarianModel) -> None:
    """Remove stored tables of positions, and check that they are the sinusoids of the paper.

    transformers computes them, but earlier versions also stored them.
    """
    d_model = model.description.config.d_model
    for side in ("encoder", "decoder"):
        table = found.pop(f"model.{side}.embed_positions.weight", None)
        if table is None:
            continue
        is_table = table.dim() == 2 and table.shape[1] == d_model and len(table) <= 2**16
        expected = (
            sinusoids(len(table), d_model)[:, sines_first_order(d_model)] if is_table else table
        )
        difference = (table.float() - expected.float()).abs().max() if is_table else torch.inf
        if difference > POSITION_TOLERANCE:
            raise UserError(
                f"{path}: model.{side}.embed_positions.weight are not the sinusoids of Marian; "
                "only models with static positions can be imported"
            )


def _check_unused(path: Path, found: Mapping[str, Tensor], used: set[str]) -> None:
    """Check that all weights of a file were read, except for copies of embeddings.

    The shared embedding is not used if the file has those of both sides.
    """
    embeddings = {SHARED, *EMBEDDING_NAMES.values()}
    for name in sorted(found.keys() - used):
        is_copy = name == SHARED
        if name in embeddings:
            for other in embeddings & used:
                is_copy = is_copy or torch.equal(found[name], found[other])
        if not is_copy:
            raise UserError(
                f"{path} has the unexpected key {quote(name)}; only models without additional "
                "parameters can be imported"
            )
