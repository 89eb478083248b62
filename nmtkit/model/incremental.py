"""Incremental decoding: one target token at a time, with cached keys and values.

Dimensions: B sentences, W beams per sentence, t target tokens so far, Ls the longest source;
D = d_model, H = n_heads, K = d_k, U = d_v, V rows of the output matrix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmtkit.model.attention import attention
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import DecoderLayer, Transformer, split_heads


@dataclass
class LayerCache:
    """Keys and values of one decoder layer."""

    keys: Tensor  # (B, W, H, t, K) of the target so far
    values: Tensor  # (B, W, H, t, U)
    src_keys: Tensor  # (B, H, Ls, K), shared by the beams of a sentence
    src_values: Tensor  # (B, H, Ls, U)


class IncrementalDecoder:
    """Computes what `Transformer.decode` computes, one target token at a time."""

    def __init__(
        self, model: Transformer, memory: Tensor, src_layout: Layout, forbidden: Tensor
    ) -> None:
        """Start with one beam per sentence.

        Args:
            model: The model to decode with.
            memory: Encoder output (S, D) of B source sentences.
            src_layout: Layout of the source sentences.
            forbidden: Token ids that are never produced, such as special symbols and the rows
                beyond the vocabulary.
        """
        self._model = model
        self._forbidden = forbidden
        (sources,) = src_layout.rectangles
        self._src_mask = sources.mask  # (B, Ls)
        self._length = 0
        self._caches = [_empty_cache(layer, memory, src_layout) for layer in _layers(model)]

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest token of each beam.

        Args:
            tokens: Token ids (B, W).

        Returns:
            Log-probabilities (B, W, V) of the next token, float32.
        """
        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        for layer, cache in zip(_layers(self._model), self._caches, strict=True):
            x = _layer_step(layer, x, cache, self._src_mask)
        x = self._model.decoder_norm(x)
        logits = (x @ self._model.output_matrix.t().to(x.dtype)).float()
        # In place, because the logits are by far the largest tensor here.
        log_probs = torch.log_softmax(logits, dim=-1, out=logits)
        return log_probs.index_fill_(-1, self._forbidden, -torch.inf)

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep `sentences` (B',), ascending, and their `beams` (B', W') in the given order."""
        self._src_mask = self._src_mask[sentences]
        for cache in self._caches:
            cache.keys = _select(cache.keys, sentences, beams)
            cache.values = _select(cache.values, sentences, beams)
            if len(sentences) < len(cache.src_keys):
                cache.src_keys = cache.src_keys.index_select(0, sentences)
                cache.src_values = cache.src_values.index_select(0, sentences)


def _select(cached: Tensor, sentences: Tensor, beams: Tensor) -> Tensor:
    """Select `beams` (B', W') of `sentences` (B',): (B, W, ...) to (B', W', ...)."""
    rows = (sentences[:, None] * cached.shape[1] + beams).flatten()
    return torch.unflatten(cached.flatten(0, 1).index_select(0, rows), 0, beams.shape)


def _layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]


def _empty_cache(layer: DecoderLayer, memory: Tensor, src_layout: Layout) -> LayerCache:
    (sources,) = src_layout.rectangles
    n_sentences = len(src_layout.lengths)
    src_keys, src_values = (
        torch.unflatten(sources.pad(each), 0, (n_sentences, -1))
        for each in layer.cross_attention.keys_values(memory)
    )
    heads = src_keys.shape[1]
    keys = memory.new_empty(n_sentences, 1, heads, 0, layer.self_attention.d_k)
    values = memory.new_empty(n_sentences, 1, heads, 0, layer.self_attention.d_v)
    return LayerCache(keys, values, src_keys, src_values)


def _layer_step(layer: DecoderLayer, x: Tensor, cache: LayerCache, src_mask: Tensor) -> Tensor:
    """Apply a DecoderLayer to the newest position: (B, W, D) to (B, W, D)."""

    def attend(y: Tensor) -> Tensor:
        q, k, v = layer.self_attention.project(y)  # (B, W, H, K), and U for v
        cache.keys = torch.cat([cache.keys, k[..., None, :]], dim=-2)
        cache.values = torch.cat([cache.values, v[..., None, :]], dim=-2)
        attended = attention(q[..., None, :], cache.keys, cache.values, mask=None)
        return layer.self_attention.out(attended.flatten(-3))  # type: ignore[no-any-return]

    def look(y: Tensor) -> Tensor:
        q = split_heads(layer.cross_attention.q(y), layer.cross_attention.heads).transpose(1, 2)
        attended = attention(q, cache.src_keys, cache.src_values, src_mask[:, None, None, :])
        return layer.cross_attention.out(attended.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    residual_attend, residual_look, residual_feed = layer.residuals
    x = residual_attend(x, attend)
    x = residual_look(x, look)
    return residual_feed(x, layer.feed_forward)  # type: ignore[no-any-return]
