"""A model as `transformers.MarianMTModel`, the post-norm Transformer among Hugging Face's classes.

Its LayerNorm has the fixed epsilon 1e-5. A LayerNorm of s z with epsilon s^2 e equals that of z
with epsilon e. So all vectors between the sublayers are multiplied by s, the weights that read them
are divided by s, and the model computes the same, but for rounding.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from nmtkit import artifacts
from nmtkit.errors import UserError
from nmtkit.model.transformer import LAYER_NORM_EPSILON, Transformer
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

MARIAN_EPSILON = 1e-5
SCALE = (MARIAN_EPSILON / LAYER_NORM_EPSILON) ** 0.5

Named = Iterator[tuple[str, Tensor]]


def check_supported(config: ModelConfig) -> None:
    """Check that MarianMTModel can run a model.

    Raises:
        UserError: It can't.
    """
    if config.neighbourhood is not None:
        raise UserError(
            "Hugging Face's Marian runs no model with restricted self-attention, neighbourhood = "
            f"{config.neighbourhood:,}, and neither does any other export; use nmtkit translate"
        )
    width = config.d_model / config.n_heads
    if config.norm != "post" or not config.tie_embeddings or not config.d_k == config.d_v == width:
        raise UserError(
            "Hugging Face's Marian runs only post-norm models with tied embeddings and d_k = d_v = "
            f"d_model / n_heads, not one with norm = {config.norm}, tie_embeddings = "
            f"{str(config.tie_embeddings).lower()}, d_k = {config.d_k:,} and d_v = {config.d_v:,}; "
            "use --format ctranslate2"
        )


def write_model(
    folder: Path, model: Transformer, n_tokens: int, decoding: DecodingConfig, n_positions: int
) -> None:
    """Write what `MarianMTModel.from_pretrained` loads.

    Args:
        folder: Where to write the files.
        model: The model, on the CPU.
        n_tokens: Size of the vocabulary; rows of the embeddings beyond it are never produced.
        decoding: Defaults of `generate`, which divides by length ** length_penalty.
        n_positions: Number of positions that it will be able to read and to write.
    """
    check_supported(model.config)
    config, n_rows = model.config, len(model.output_matrix)
    symbols = {
        "bos_token_id": BOS_ID,
        "decoder_start_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
    }
    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {
            "layers": config.n_layers,
            "ffn_dim": config.d_ff,
            "attention_heads": config.n_heads,
        }.items()
    }
    described = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "activation_function": "relu",
        "d_model": config.d_model,
        "dropout": config.dropout,
        "forced_eos_token_id": None,
        "max_position_embeddings": n_positions,
        "scale_embedding": True,
        "vocab_size": n_rows,
        **sides,
        **symbols,
    }
    artifacts.write_json(folder / "config.json", described)
    generation = {
        "length_penalty": decoding.length_penalty,
        "max_length": n_positions,
        "num_beams": decoding.beam_size,
        "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, n_rows)],
        **symbols,
    }
    artifacts.write_json(folder / "generation_config.json", generation)
    weights = {name: tensor.contiguous() for name, tensor in _weights(model, n_positions)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@torch.no_grad()
def _weights(model: Transformer, n_positions: int) -> Named:
    """Yield the weights under their names in MarianMTModel."""
    ours = {name: parameter.detach() for name, parameter in model.named_parameters()}
    yield "model.shared.weight", model.output_matrix.detach() * SCALE
    yield "final_logits_bias", torch.zeros(1, len(model.output_matrix))
    positions = torch.arange(n_positions)
    for side, embedding in (("encoder", model.src_embedding), ("decoder", model.tgt_embedding)):
        table = embedding.position(positions, n_positions)
        yield f"model.{side}.embed_positions.weight", table.detach() * SCALE
    for number in range(model.config.n_layers):
        place = f"model.encoder.layers.{number}"
        layer = f"encoder.{number}"
        yield from _attention(ours, f"{layer}.self_attention", f"{place}.self_attn")
        yield from _feed_forward(ours, layer, place)
        yield from _norm(ours, f"{layer}.residuals.0.norm", f"{place}.self_attn_layer_norm", SCALE)
        yield from _norm(ours, f"{layer}.residuals.1.norm", f"{place}.final_layer_norm", SCALE)
        place, layer = place.replace("encoder", "decoder"), f"decoder.{number}"
        is_last = number == model.config.n_layers - 1
        yield from _attention(ours, f"{layer}.self_attention", f"{place}.self_attn")
        yield from _attention(ours, f"{layer}.cross_attention", f"{place}.encoder_attn")
        yield from _feed_forward(ours, layer, place)
        yield from _norm(ours, f"{layer}.residuals.0.norm", f"{place}.self_attn_layer_norm", SCALE)
        yield from _norm(
            ours, f"{layer}.residuals.1.norm", f"{place}.encoder_attn_layer_norm", SCALE
        )
        # The last one is read by the output matrix, which is SCALE times ours.
        last = 1 / SCALE if is_last else SCALE
        yield from _norm(ours, f"{layer}.residuals.2.norm", f"{place}.final_layer_norm", last)


def _attention(ours: dict[str, Tensor], name: str, place: str) -> Named:
    merged = ("qkv",) if f"{name}.qkv.weight" in ours else ("q", "kv")
    n_heads_width = ours[f"{name}.out.weight"].shape[1]
    for kind, factor in (("weight", 1 / SCALE), ("bias", 1.0)):
        if f"{name}.out.{kind}" in ours:
            whole = torch.cat([ours[f"{name}.{part}.{kind}"] for part in merged])
        else:
            whole = torch.zeros(3 * n_heads_width)
        for letter, part in zip("qkv", whole.chunk(3), strict=True):
            yield f"{place}.{letter}_proj.{kind}", part * factor
    out = ours[f"{name}.out.weight"]
    yield f"{place}.out_proj.weight", out * SCALE
    bias = ours.get(f"{name}.out.bias", torch.zeros(len(out)))
    yield f"{place}.out_proj.bias", bias * SCALE


def _feed_forward(ours: dict[str, Tensor], layer: str, place: str) -> Named:
    name = f"{layer}.feed_forward"
    yield f"{place}.fc1.weight", ours[f"{name}.w1.weight"] / SCALE
    yield f"{place}.fc1.bias", ours[f"{name}.w1.bias"]
    yield f"{place}.fc2.weight", ours[f"{name}.w2.weight"] * SCALE
    yield f"{place}.fc2.bias", ours[f"{name}.w2.bias"] * SCALE


def _norm(ours: dict[str, Tensor], name: str, place: str, factor: float) -> Named:
    yield f"{place}.weight", ours[f"{name}.weight"] * factor
    yield f"{place}.bias", ours[f"{name}.bias"] * factor
