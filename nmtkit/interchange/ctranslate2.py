"""A model in the format of CTranslate2 (https://github.com/OpenNMT/CTranslate2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from torch import Tensor, nn

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, UNK_ID
from nmtkit.interchange.names import check_runs
from nmtkit.model.transformer import (
    Embedding,
    FeedForward,
    Transformer,
)

ACTIVATIONS = {"relu": Activation.RELU, "swish": Activation.SWISH}  # by the names of recipes


def write_model(
    folder: Path, model: Transformer, vocabulary: Sequence[str], dtype: str, n_positions: int
) -> None:
    """Write a model as `ctranslate2.Translator` loads it.

    Cached conversions are not rebuilt unless `decoding.ctranslate2_engine.CONVERTER` increases:
    increase it when the written files change.

    Args:
        folder: An existing folder.
        model: A model on the CPU.
        vocabulary: A name for each row of its embeddings.
        dtype: Data type of the matrices, by CTranslate2's name.
        n_positions: Number of positions that the model can read or write.

    Raises:
        UserError: CTranslate2 cannot run the model.
    """
    config = model.config
    check_runs("CTranslate2", config, ("post", "pre"))
    is_pre_norm = config.norm == "pre"
    spec = TransformerSpec.from_config(
        (config.n_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=is_pre_norm,
        activation=ACTIVATIONS[config.activation],
    )

    # Weights
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.src_embedding, n_positions)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.tgt_embedding, n_positions)
    if is_pre_norm:
        _set(spec.encoder.layer_norm, model.encoder_norm, "gamma", "beta")
        _set(spec.decoder.layer_norm, model.decoder_norm, "gamma", "beta")
    for encoder_spec, encoder_layer in zip(spec.encoder.layer, model.encoder, strict=True):
        attend, feed = encoder_layer.residuals
        own = encoder_layer.self_attention
        _set_attention(encoder_spec.self_attention, [own.qkv, own.out], attend)
        _set_feed_forward(encoder_spec.ffn, encoder_layer.feed_forward, feed)
    for decoder_spec, decoder_layer in zip(spec.decoder.layer, model.decoder, strict=True):
        attend, look, feed = decoder_layer.residuals
        own, cross = decoder_layer.self_attention, decoder_layer.cross_attention
        _set_attention(decoder_spec.self_attention, [own.qkv, own.out], attend)
        _set_attention(decoder_spec.attention, [cross.q, cross.kv, cross.out], look)
        _set_feed_forward(decoder_spec.ffn, decoder_layer.feed_forward, feed)
    spec.decoder.projection.weight = _array(model.output_matrix)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)

    # Vocabulary
    spec.register_source_vocabulary(list(vocabulary))
    spec.register_target_vocabulary(list(vocabulary))
    spec.config.bos_token = vocabulary[BOS_ID]
    spec.config.decoder_start_token = vocabulary[BOS_ID]
    spec.config.eos_token = vocabulary[EOS_ID]
    spec.config.unk_token = vocabulary[UNK_ID]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon

    spec.validate()
    spec.optimize(dtype)
    spec.save(str(folder))


def _set_embedding(side: Any, spec: Any, embedding: Embedding, n_positions: int) -> None:
    """Set the embedding of the encoder or of the decoder, and its table of positions.

    Args:
        side: Specification of the encoder or the decoder.
        spec: Specification of its embedding.
        n_positions: Number of rows of the table.
    """
    spec.weight = _array(embedding.weight)
    positions = torch.arange(n_positions)
    side.position_encodings.encodings = _array(embedding.position(positions, n_positions))


def _set_attention(spec: Any, linears: Sequence[nn.Module], residual: nn.Module) -> None:
    """Set the projections of an attention sublayer, and its LayerNorm.

    Args:
        spec: Specification of the sublayer.
        linears: The projections, in the order of the specification.
        residual: The residual connection around the sublayer.
    """
    for linear_spec, linear in zip(spec.linear, linears, strict=True):
        _set(linear_spec, linear, "weight", "bias")
    _set(spec.layer_norm, residual.norm, "gamma", "beta")


def _set_feed_forward(spec: Any, feed_forward: FeedForward, residual: nn.Module) -> None:
    """Set the matrices of a feed-forward sublayer, and its LayerNorm.

    Args:
        spec: Specification of the sublayer.
        residual: The residual connection around it.
    """
    _set(spec.linear_0, feed_forward.w1, "weight", "bias")
    _set(spec.linear_1, feed_forward.w2, "weight", "bias")
    _set(spec.layer_norm, residual.norm, "gamma", "beta")


def _set(spec: Any, module: Any, weight: str, bias: str) -> None:
    """Set the weight and the bias of a linear layer or a LayerNorm.

    Args:
        spec: Specification of the module.
        module: The module, perhaps without a bias.
        weight: Name of the weight in the specification.
        bias: Name of the bias in the specification.
    """
    setattr(spec, weight, _array(module.weight))
    if module.bias is not None:
        setattr(spec, bias, _array(module.bias))


def _array(tensor: Tensor) -> Any:
    """Return a copy of a tensor, since CTranslate2 quantizes arrays in place."""
    return tensor.detach().numpy().copy()
