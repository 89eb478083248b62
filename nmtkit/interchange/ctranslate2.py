"""A model in the format of CTranslate2 (https://github.com/OpenNMT/CTranslate2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from torch import Tensor

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, UNK_ID
from nmtkit.interchange.names import check_runs
from nmtkit.model.transformer import DecoderLayer, Embedding, Transformer


def write_model(
    folder: Path, model: Transformer, vocabulary: Sequence[str], dtype: str, n_positions: int
) -> None:
    """Write a `model` on the CPU as `ctranslate2.Translator` loads it, its matrices in `dtype`.

    Cached conversions are not rebuilt unless `decoding.ctranslate2_engine.CONVERTER` increases:
    change it with the files that are written here.
    """
    check_runs("CTranslate2", model.config, ("post", "pre"))
    spec = TransformerSpec.from_config(
        model.config.n_layers,
        model.config.n_heads,
        pre_norm=model.config.norm == "pre",
        activation=Activation.SWISH if model.config.activation == "swish" else Activation.RELU,
    )
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.src_embedding, n_positions)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.tgt_embedding, n_positions)
    if model.config.norm == "pre":
        _set(spec.encoder.layer_norm, model.encoder_norm, "gamma", "beta")
        _set(spec.decoder.layer_norm, model.decoder_norm, "gamma", "beta")
    layer_specs = [*spec.encoder.layer, *spec.decoder.layer]
    for layer_spec, layer in zip(layer_specs, [*model.encoder, *model.decoder], strict=True):
        _set_layer(layer_spec, layer)
    spec.decoder.projection.weight = _array(model.output_matrix)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    spec.register_source_vocabulary(list(vocabulary))
    spec.register_target_vocabulary(list(vocabulary))
    spec.config.bos_token = spec.config.decoder_start_token = vocabulary[BOS_ID]
    spec.config.eos_token = vocabulary[EOS_ID]
    spec.config.unk_token = vocabulary[UNK_ID]
    spec.config.layer_norm_epsilon = model.config.layer_norm_epsilon
    spec.validate()
    spec.optimize(dtype)
    spec.save(str(folder))


def _set_embedding(side: Any, spec: Any, embedding: Embedding, n_positions: int) -> None:
    spec.weight = _array(embedding.weight)
    positions = torch.arange(n_positions)
    side.position_encodings.encodings = _array(embedding.position(positions, n_positions))


def _set_layer(spec: Any, layer: Any) -> None:
    own, feed_forward = layer.self_attention, layer.feed_forward
    sublayers = [
        (spec.self_attention, spec.self_attention.linear, [own.qkv, own.out]),
        (spec.ffn, [spec.ffn.linear_0, spec.ffn.linear_1], [feed_forward.w1, feed_forward.w2]),
    ]
    if isinstance(layer, DecoderLayer):
        cross: Any = layer.cross_attention
        linears = [cross.q, cross.kv, cross.out]
        sublayers.insert(1, (spec.attention, spec.attention.linear, linears))
    for (sublayer, linear_specs, linears), residual in zip(sublayers, layer.residuals, strict=True):
        for linear_spec, linear in zip(linear_specs, linears, strict=True):
            _set(linear_spec, linear, "weight", "bias")
        _set(sublayer.layer_norm, residual.norm, "gamma", "beta")


def _set(spec: Any, module: Any, weight: str, bias: str) -> None:
    setattr(spec, weight, _array(module.weight))
    if module.bias is not None:
        setattr(spec, bias, _array(module.bias))


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy().copy()  # quantization alters it
