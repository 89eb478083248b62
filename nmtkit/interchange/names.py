"""What fairseq calls our weights; Hugging Face's Marian uses most of the same names."""

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


def parts_of(name: str) -> list[str]:
    """Return fairseq's names of the parts that our weight `name` stacks, first to last."""
    if name in OUTSIDE_LAYERS:
        return [OUTSIDE_LAYERS[name]]
    side, layer, *sublayer, kind = name.split(".")
    if sublayer[0] == "residuals":
        parts: tuple[str, ...] = (NORMS[side][int(sublayer[1])],)
    else:
        parts = OF_SUBLAYERS[".".join(sublayer)]
    return [f"{side}.layers.{layer}.{part}.{kind}" for part in parts]
