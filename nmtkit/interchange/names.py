"""Names of weights in fairseq and transformers, and checks of what other programs can represent."""

import re

from nmtkit.config.model import ModelConfig
from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

UNUSED = re.compile(r"<unused \d+>")  # the names that exported vocabularies give to unused rows

# fairseq's names of our weights. One of our weights stacks the parts listed here, first to last.
# Layer norms of a layer, in the order of its sublayers:
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
SUBLAYERS = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out": ("self_attn.out_proj",),
    "cross_attention.q": ("encoder_attn.q_proj",),
    "cross_attention.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.out": ("encoder_attn.out_proj",),
    "feed_forward.w1": ("fc1",),
    "feed_forward.w2": ("fc2",),
}
OUTSIDE_LAYERS = {
    "src_embedding.weight": "encoder.embed_tokens.weight",
    "tgt_embedding.weight": "decoder.embed_tokens.weight",
    "src_embedding.positions": "encoder.embed_positions.weight",
    "tgt_embedding.positions": "decoder.embed_positions.weight",
    "encoder_norm.weight": "encoder.layer_norm.weight",
    "encoder_norm.bias": "encoder.layer_norm.bias",
    "decoder_norm.weight": "decoder.layer_norm.weight",
    "decoder_norm.bias": "decoder.layer_norm.bias",
    "_output": "decoder.output_projection.weight",
    "output_bias": "decoder.output_projection.bias",
}


def check_runs(program: str, config: ModelConfig, norms: tuple[str, ...]) -> None:
    """Refuse a model that another program does not run.

    Args:
        program: Its name, for the message.
        config: The model.
        norms: The values of `config.norm` that it supports.

    Raises:
        UserError: It does not support the model.
    """
    is_plain = config.d_k == config.d_v == config.d_model / config.n_heads
    if config.norm not in norms or config.neighbourhood is not None or not is_plain:
        raise UserError(
            f"{program} does not support models with norm = {config.norm}, d_k = {config.d_k:,}, "
            f"d_v = {config.d_v:,} and neighbourhood = {config.neighbourhood}, only with norm = "
            f"{' or '.join(norms)}, d_k = d_v = d_model / n_heads and full self-attention; run "
            "`nmtkit translate --engine torch`"
        )


def check_symbols(subword: Subword, program: str) -> None:
    """Refuse a vocabulary with pieces that `program` would take for symbols.

    Args:
        subword: The vocabulary; its first pieces are the symbols themselves.
        program: Its name in the plural, as in "tokenizers of Hugging Face".

    Raises:
        UserError: A piece has the name of a symbol or of an unused row.
    """
    for piece in subword.pieces(range(len(SPECIALS), subword.n_tokens)):
        if piece in SPECIALS or UNUSED.fullmatch(piece):
            raise UserError(
                f"the vocabulary has the subword {quote(piece)}, which {program} cannot "
                "distinguish from the symbol of this name; run `nmtkit translate` instead"
            )


def part_names(name: str) -> list[str]:
    """Return fairseq's names of the parts that our weight `name` stacks, first to last."""
    if name in OUTSIDE_LAYERS:
        return [OUTSIDE_LAYERS[name]]
    # Such as encoder.0.self_attention.qkv.weight, or encoder.0.residuals.1.norm.weight
    side, layer, *sublayer, kind = name.split(".")
    parts: tuple[str, ...]
    if sublayer[0] == "residuals":
        parts = (NORMS[side][int(sublayer[1])],)
    else:
        parts = SUBLAYERS[".".join(sublayer)]
    return [f"{side}.layers.{layer}.{part}.{kind}" for part in parts]
