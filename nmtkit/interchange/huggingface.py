"""Models for Hugging Face's transformers, in two of its classes of post-norm Transformers.

`MarianMTModel` has the sinusoids of the paper, `FSMTForConditionalGeneration` those of fairseq.
Marian's table of positions is computed when a model is loaded, and `save_pretrained` leaves it out.
It can therefore hold nothing else, and all that differs from our model is in the weights:

- Marian's sines precede its cosines; in the paper's table, they alternate. The dimensions of all
  vectors between the sublayers are reordered. Neither attention nor LayerNorm depends on the order.
- Marian's decoder starts from a vector of zeros instead of `<s>`; programs that read such models
  expect the last row, `<pad>`, to be that vector. The embedding of `<s>` is subtracted from all
  embeddings, and the first self-attention adds it back. If the embeddings are the output matrix
  too, all logits of a position change by the same number, and the softmax does not.
- LayerNorm has the fixed epsilon 1e-5. A LayerNorm of s z with epsilon s^2 e equals that of z with
  epsilon e, so all vectors between the sublayers are multiplied by s, and the weights that read
  them are divided by s.

Deviation: the first LayerNorm of each side reads vectors that contain the table of positions, whose
scale is fixed. It keeps the epsilon 1e-5. This changes its output by about 1e-5 of its value.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.interchange.names import check_runs, part_names
from nmtkit.model.transformer import Transformer, fairseq_sinusoids
from nmtkit.model.weights import shapes
from nmtkit.store.records import write_json
from nmtkit.store.tensors import save_tensors
from nmtkit.utils.errors import UserError

EPSILON = 1e-5  # of each LayerNorm
NEVER = -1e4  # a logit that float16 can represent

FSMT_PAD_ID = 1  # fairseq's; the first position follows it. Our <s> has this id, and is not read
FIRST_ATTENTION = re.compile(r"(en|de)coder\.0\.self_attention\.")

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
# Our names of weights, by their relation to the vectors between sublayers
EMBEDDINGS = ("src_embedding.weight", "tgt_embedding.weight", "_output")  # one row per token
READERS = re.compile(r"(qkv|\.q|\.kv|w1)\.weight$")  # their columns are those of the vectors
WRITERS = re.compile(r"(out|w2|norm)\.(weight|bias)$")  # their rows are those of the vectors


@dataclass(frozen=True)
class Layout:
    """The class of transformers that runs a model, and its ids.

    Attributes:
        kind: marian or fsmt.
        pad_id: The id of `<pad>`. All other ids are ours.
        vocab_size: Number of rows of the embeddings.
    """

    kind: str
    pad_id: int
    vocab_size: int


def choose_layout(config: ModelConfig, n_rows: int) -> Layout:
    """Choose the class for a model.

    Args:
        n_rows: Number of rows of its embeddings.

    Raises:
        UserError: No class of transformers computes this model.
    """
    check_runs("Hugging Face's transformers", config, ("post",))
    if config.positions == "learned" or config.layer_norm_epsilon > EPSILON:
        raise UserError(
            "Hugging Face's transformers does not support post-norm Transformers with positions = "
            f"{config.positions} and layer_norm_epsilon = {config.layer_norm_epsilon:g}, only with "
            f"sinusoids and an epsilon of at most {EPSILON:g}; export with --format ctranslate2"
        )
    # FSMT is the port of fairseq; its output layer has no bias.
    if config.positions == "fairseq":
        if config.output_bias:
            raise UserError(
                "Hugging Face's transformers does not support models with positions = fairseq and "
                "output_bias = true; export with --format ctranslate2"
            )
        return Layout("fsmt", FSMT_PAD_ID, n_rows)
    return Layout("marian", n_rows, n_rows + 1)


def write_model(
    folder: Path,
    model: Transformer,
    n_tokens: int,
    decoding: DecodingConfig,
    max_subwords: int,
    n_positions: int,
) -> None:
    """Write a model as `AutoModelForSeq2SeqLM.from_pretrained` loads it.

    The ids are ours, except for `<pad>`.

    Args:
        folder: An existing folder.
        model: A model on the CPU.
        n_tokens: Size of the vocabulary. Further rows of the embeddings are never produced.
        decoding: Default settings of `generate`. It divides by length ** length_penalty.
        max_subwords: Maximum number of subwords of a source, EOS included. `generate` ends where
            the translation of such a source would end.
        n_positions: Number of positions that the model can read or write.
    """
    config = model.config
    layout = choose_layout(config, len(model.output_matrix))
    embedding = model.tgt_embedding.weight
    symbol_ids = {
        "eos_token_id": EOS_ID,
        "pad_token_id": layout.pad_id,
        "decoder_start_token_id": layout.pad_id,
    }
    values = {**CONFIGS[layout.kind], "d_model": config.d_model, "dropout": config.dropout}
    values["activation_function"] = config.activation
    values["max_position_embeddings"] = n_positions
    if layout.kind == "marian":
        values["tie_word_embeddings"] = config.tie_embeddings
        values["vocab_size"] = layout.vocab_size
        values["share_encoder_decoder_embeddings"] = config.tie_embeddings
    else:
        values["src_vocab_size"] = values["tgt_vocab_size"] = layout.vocab_size
        # fairseq's decoder starts with </s>. A model trained further by nmtkit has another <s>,
        # which is stored in the row of our padding.
        is_fairseqs = torch.equal(embedding[BOS_ID], embedding[EOS_ID])
        symbol_ids["decoder_start_token_id"] = EOS_ID if is_fairseqs else PAD_ID
    values["encoder_layers"] = config.n_layers
    values["decoder_layers"] = config.decoder_layers
    for side in ("encoder", "decoder"):
        values[f"{side}_ffn_dim"] = config.d_ff
        values[f"{side}_attention_heads"] = config.n_heads
    write_json(folder / "config.json", {**values, **symbol_ids})
    # The start symbol is counted there. With an EOS at the maximum length, as in our search:
    max_length = min(n_positions, decoding.max_target_length(max_subwords - 1) + 2)
    # The symbols that our search never produces are suppressed there, too.
    generation = {
        "length_penalty": decoding.length_penalty,
        "max_length": max_length,
        "forced_eos_token_id": EOS_ID,  # at the maximum length
        "num_beams": decoding.beam_size,
        "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, layout.vocab_size)],
        **symbol_ids,
    }
    write_json(folder / "generation_config.json", generation)
    with torch.no_grad():
        weights = dict(_fsmt(model, n_positions) if layout.kind == "fsmt" else _marian(model))
    # Computed in float64: the conversion adds no rounding errors of its own.
    rounded = {name: weight.float().contiguous() for name, weight in weights.items()}
    save_tensors(rounded, folder / "model.safetensors", {"format": "pt"})


def _fsmt(model: Transformer, n_positions: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model under their names in FSMTForConditionalGeneration."""
    # FSMT has three matrices and a stored table of positions.
    weights = _scaled_weights(model)
    embedding = weights["tgt_embedding.weight"]
    for name in EMBEDDINGS:  # here, they are never tied
        weights.setdefault(name, embedding.clone())
    embedding[PAD_ID] = embedding[BOS_ID]
    for name, weight in weights.items():
        parts = part_names(name)
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True):
            yield f"model.{part}", chunk
    table = fairseq_sinusoids(n_positions, model.config.d_model)
    for side in ("encoder", "decoder"):  # the rows up to that of <pad> are never read
        yield f"model.{side}.embed_positions.weight", pad(table, (0, 0, FSMT_PAD_ID + 1, 0))


def _marian(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a model under their names in MarianMTModel."""
    d_model, n_rows = model.config.d_model, len(model.output_matrix)
    weights = _scaled_weights(model)
    _start_from_zeros(weights, model.config)
    # Our model has no row of <pad>: it must not have a part in the softmax.
    bias = weights.pop("output_bias", torch.zeros(n_rows))
    yield "final_logits_bias", pad(bias, (0, 1), value=NEVER)[None]
    names = {"decoder.output_projection.weight": "lm_head.weight"}
    if model.config.tie_embeddings:
        names["decoder.embed_tokens.weight"] = "model.shared.weight"
    order = sines_first_order(d_model)
    for name, weight in weights.items():
        padded = pad(weight, (0, 0, 0, 1)) if name in EMBEDDINGS else weight
        ordered = reorder(name, padded, order)
        parts = part_names(name)
        for part, chunk in zip(parts, ordered.chunk(len(parts)), strict=True):
            yield names.get(part, f"model.{part}"), chunk


def _start_from_zeros(weights: dict[str, Tensor], config: ModelConfig) -> None:
    """Subtract the embedding of `<s>` from all others, and let the first layers add it back.

    Args:
        weights: The weights by our names. They are changed.
    """
    start = weights["tgt_embedding.weight"][BOS_ID].clone()
    weights["tgt_embedding.weight"] -= start
    embedded = start * config.d_model**0.5
    sides = ["encoder", "decoder"] if config.tie_embeddings else ["decoder"]
    for side in sides:
        attention = f"{side}.0.self_attention"
        weights[f"{attention}.qkv.bias"] += weights[f"{attention}.qkv.weight"] @ embedded
        weights[f"{attention}.out.bias"] += embedded


def _scaled_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights in float64, with all biases, of an equal model with another epsilon.

    All vectors between the sublayers are scaled, with two exceptions: the embeddings (the first
    attention reads them and adds to them), and the last vectors (the output matrix reads them).
    """
    config = model.config
    scale = (EPSILON / config.layer_norm_epsilon) ** 0.5
    last_norm = f"decoder.{config.decoder_layers - 1}.residuals.2.norm."
    ours = dict(model.named_parameters())
    weights = {}
    biased = config.model_copy(update={"attention_bias": True})
    for name, shape in shapes(biased, len(model.output_matrix)):
        # Biases that our model does not have are zeros in these classes.
        weight = ours[name].double() if name in ours else torch.zeros(shape, dtype=torch.float64)
        if not FIRST_ATTENTION.match(name) and not name.startswith(last_norm):
            if READERS.search(name):
                weight = weight / scale
            elif WRITERS.search(name):
                weight = weight * scale
        weights[name] = weight.clone()
    return weights


# The order of dimensions in Marian, also for its import


def sines_first_order(d_model: int) -> Tensor:
    """Return the dimensions of our vectors in Marian's order (d_model,)."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def alternating(d_model: int) -> Tensor:
    """Return the dimensions of Marian's vectors in our order (d_model,)."""
    return sines_first_order(d_model).argsort()


def reorder(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """Return a weight whose vectors have their dimensions in another order.

    Args:
        name: Our name of the weight.
        weight: The weight, of any shape.
        order: The dimensions in the new order (d_model,).
    """
    if name in EMBEDDINGS or READERS.search(name):
        return weight[:, order]
    if WRITERS.search(name):
        return weight[order]
    return weight
