"""A model in the format of CTranslate2 (https://github.com/OpenNMT/CTranslate2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from ctranslate2.specs import TransformerSpec
from torch import Tensor, nn

from nmtkit.errors import UserError
from nmtkit.interchange.ctranslate2_limits import unsupported
from nmtkit.model.transformer import (
    CrossAttention,
    Embedding,
    FeedForward,
    SelfAttention,
    Transformer,
)
from nmtkit.symbols import BOS_ID, EOS_ID, UNK_ID


def write_model(
    folder: Path,
    model: Transformer,
    vocabulary: Sequence[str],
    dtype: str,
    n_positions: int,
) -> None:
    """Write what `ctranslate2.Translator` loads.

    Args:
        folder: Where to write the files.
        model: The model, on the CPU.
        vocabulary: A different string for each row of the model's embeddings.
        dtype: Type of the matrices in the file: float32, bfloat16, float16 or int8.
        n_positions: Number of positions that it will be able to read and to write.

    Raises:
        UserError: CTranslate2 can't run the model.
    """
    if why := unsupported(model.config):
        raise UserError(f"{why}; use --engine torch")
    spec = TransformerSpec.from_config(
        model.config.n_layers, model.config.n_heads, pre_norm=model.config.norm == "pre"
    )
    _set_embedding(spec.encoder, spec.encoder.embeddings[0], model.src_embedding, n_positions)
    _set_embedding(spec.decoder, spec.decoder.embeddings, model.tgt_embedding, n_positions)
    if model.config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder_norm)
        _set_norm(spec.decoder.layer_norm, model.decoder_norm)
    for layer_spec, encoder in zip(spec.encoder.layer, model.encoder, strict=True):
        _set_self_attention(layer_spec.self_attention, encoder.self_attention, encoder.residuals[0])
        _set_feed_forward(layer_spec.ffn, encoder.feed_forward, encoder.residuals[1])
    for layer_spec, decoder in zip(spec.decoder.layer, model.decoder, strict=True):
        _set_self_attention(layer_spec.self_attention, decoder.self_attention, decoder.residuals[0])
        _set_cross_attention(layer_spec.attention, decoder.cross_attention, decoder.residuals[1])
        _set_feed_forward(layer_spec.ffn, decoder.feed_forward, decoder.residuals[2])
    spec.decoder.projection.weight = _array(model.output_matrix)
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


def _set_self_attention(spec: Any, attention: SelfAttention, residual: nn.Module) -> None:
    _set_linear(spec.linear[0], attention.qkv)
    _set_linear(spec.linear[1], attention.out)
    _set_norm(spec.layer_norm, residual.norm)


def _set_cross_attention(spec: Any, attention: CrossAttention, residual: nn.Module) -> None:
    _set_linear(spec.linear[0], attention.q)
    _set_linear(spec.linear[1], attention.kv)
    _set_linear(spec.linear[2], attention.out)
    _set_norm(spec.layer_norm, residual.norm)


def _set_feed_forward(spec: Any, feed_forward: FeedForward, residual: nn.Module) -> None:
    _set_linear(spec.linear_0, feed_forward.w1)
    _set_linear(spec.linear_1, feed_forward.w2)
    _set_norm(spec.layer_norm, residual.norm)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma = _array(norm.weight)
    spec.beta = _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().numpy().copy()  # quantization alters it
