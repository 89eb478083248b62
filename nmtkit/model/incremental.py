"""Incremental decoding: one target token at a time, with cached keys and values.

Dimensions: B sentences, W beams per sentence, C entries of a sentence's cache, Ls the longest
source; D = d_model, H = n_heads, K = d_k, U = d_v, V rows of the output matrix.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.model.attention import attention
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import DecoderLayer, Transformer, split_heads

STEPS = 8  # of which the cache has room for the entries before it is compacted


class IncrementalDecoder:
    """Computes what `Transformer.decode` computes, one target token at a time.

    All beams of a sentence share one cache. A step appends the keys and values of each beam's
    newest token, and `_seen` tells which entries belong to a beam's own history. To reorder beams
    is to reorder this table: no keys and values are copied. When the cache is full, the entries
    that no beam sees any more are removed. Beams have most of their history in common, so that the
    cache is hardly longer than a single hypothesis.
    """

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
        self._src_mask = sources.mask[:, None, None, :]  # (B, 1, 1, Ls)
        self._length = 0
        self._caches = [LayerCache(layer, memory, src_layout) for layer in _layers(model)]
        self._seen = memory.new_empty(len(sources.mask), 1, 0, dtype=torch.bool)  # (B, W, C)

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest token of each beam.

        Args:
            tokens: Token ids (B, W).

        Returns:
            Log-probabilities (B, W, V) of the next token, float32.
        """
        n_sentences, n_beams = tokens.shape
        if self._seen.shape[2] + n_beams > self._caches[0].room:
            self._compact(STEPS * n_beams)
        itself = torch.eye(n_beams, dtype=torch.bool, device=tokens.device)
        self._seen = torch.cat([self._seen, itself.expand(n_sentences, -1, -1)], 2)
        if neighbourhood := self._model.config.neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood
        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        for layer, cache in zip(_layers(self._model), self._caches, strict=True):
            x = _layer_step(layer, x, cache, self._seen[:, None], self._src_mask)
        logits = self._model.logits(self._model.decoder_norm(x)).float()
        # In place, because the logits are by far the largest tensor here.
        log_probs = torch.log_softmax(logits, dim=-1, out=logits)
        return log_probs.index_fill_(-1, self._forbidden, -torch.inf)

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the places `sentences` (B',) and of each its `beams` (B', W'), in this order."""
        self._seen = self._seen[sentences[:, None], beams]
        if len(sentences) < len(self._src_mask):
            self._src_mask = self._src_mask[sentences]
            places = torch.arange(len(sentences), device=sentences.device)
            moved = (sentences != places).nonzero().squeeze(1)
            for cache in self._caches:
                cache.keep(len(sentences), moved, sentences[moved])

    def _compact(self, room: int) -> None:
        """Remove the entries that no beam sees, and make room for others."""
        is_used = self._seen.any(1)  # (B, C)
        n_used = int(is_used.sum(1).max()) if is_used.numel() else 0
        used = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, :n_used]
        self._seen = self._seen.take_along_dim(used[:, None], 2)
        for cache in self._caches:
            cache.select(pad(used, (0, room)))


class LayerCache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, src_layout: Layout) -> None:
        (sources,) = src_layout.rectangles
        n_sentences = len(src_layout.lengths)
        # (B, H, Ls, K) and (B, H, Ls, U) of the source
        self.src_keys, self.src_values = (
            torch.unflatten(sources.pad(each), 0, (n_sentences, -1))
            for each in layer.cross_attention.keys_values(memory)
        )
        heads = self.src_keys.shape[1]
        # (B, H, room, K) and (B, H, room, U) of the target; the first C are in use
        self.keys = memory.new_empty(n_sentences, heads, STEPS, layer.self_attention.d_k)
        self.values = memory.new_empty(n_sentences, heads, STEPS, layer.self_attention.d_v)

    @property
    def room(self) -> int:
        """Return the number of entries per sentence for which there is memory."""
        return self.keys.shape[2]

    def append(self, n: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append to `n` entries the keys (B, H, W, K) and values (B, H, W, U) of W beams.

        Returns:
            Keys (B, H, C, K) and values (B, H, C, U) of all entries.
        """
        end = n + keys.shape[2]
        self.keys[:, :, n:end] = keys
        self.values[:, :, n:end] = values
        return self.keys[:, :, :end], self.values[:, :, :end]

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move `sentences` to `places`, then keep the first `n` places."""
        for name in ("keys", "values", "src_keys", "src_values"):
            cached = getattr(self, name)
            cached[places] = cached[sentences]
            setattr(self, name, cached[:n])

    def select(self, entries: Tensor) -> None:
        """Keep the `entries` (B, C') of each sentence, in this order."""
        n_sentences, heads, room = self.keys.shape[:3]
        starts = torch.arange(0, n_sentences * heads * room, room, device=entries.device)
        rows = (starts.view(n_sentences, heads, 1) + entries[:, None]).flatten()
        shape = n_sentences, heads, -1
        keys, values = self.keys.flatten(0, 2), self.values.flatten(0, 2)
        self.keys = torch.unflatten(keys.index_select(0, rows), 0, shape)
        self.values = torch.unflatten(values.index_select(0, rows), 0, shape)


def _layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]


def _layer_step(
    layer: DecoderLayer, x: Tensor, cache: LayerCache, seen: Tensor, src_mask: Tensor
) -> Tensor:
    """Apply a DecoderLayer to the newest position: (B, W, D) to (B, W, D)."""
    n_entries = seen.shape[-1] - x.shape[1]  # before this step

    def attend(y: Tensor) -> Tensor:
        q, k, v = (each.transpose(1, 2) for each in layer.self_attention.project(y))
        attended = attention(q, *cache.append(n_entries, k, v), seen)  # (B, H, W, U)
        return layer.self_attention.out(attended.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    def look(y: Tensor) -> Tensor:
        q = split_heads(layer.cross_attention.q(y), layer.cross_attention.heads).transpose(1, 2)
        attended = attention(q, cache.src_keys, cache.src_values, src_mask)
        return layer.cross_attention.out(attended.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    residual_attend, residual_look, residual_feed = layer.residuals
    x = residual_attend(x, attend)
    x = residual_look(x, look)
    return residual_feed(x, layer.feed_forward)  # type: ignore[no-any-return]
