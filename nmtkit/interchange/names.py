"""What fairseq calls our weights, Hugging Face's Marian mostly too, and what programs can't run."""

from nmtkit.errors import UserError
from nmtkit.recipe import ModelConfig

NORMS = {  # of a layer, in the order of its sublayers
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
OF_SUBLAYERS = {
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
    "_output": "decoder.output_projection.weight",
    **{
        f"{side}_norm.{kind}": f"{side}.layer_norm.{kind}"
        for side in ("encoder", "decoder")
        for kind in ("weight", "bias")
    },
}


def check_runs(program: str, config: ModelConfig, norms: tuple[str, ...]) -> None:
    """Refuse a model that another program does not run."""
    is_plain = config.d_k == config.d_v == config.d_model / config.n_heads
    if config.norm not in norms or config.neighbourhood is not None or not is_plain:
        raise UserError(
            f"{program} runs no model with norm = {config.norm}, d_k = {config.d_k:,}, d_v = "
            f"{config.d_v:,} and neighbourhood = {config.neighbourhood}, only with norm = "
            f"{' or '.join(norms)}, d_k = d_v = d_model / n_heads and full self-attention; use "
            "nmtkit translate --engine torch"
        )


def parts_of(name: str) -> list[str]:
    """Return fairseq's names of the parts that our weight `name` stacks, first to last."""
    if name in OUTSIDE_LAYERS:
        return [OUTSIDE_LAYERS[name]]
    side, layer, *sublayer, kind = name.split(".")
    is_norm = sublayer[0] == "residuals"
    parts = [NORMS[side][int(sublayer[1])]] if is_norm else OF_SUBLAYERS[".".join(sublayer)]
    return [f"{side}.layers.{layer}.{part}.{kind}" for part in parts]
