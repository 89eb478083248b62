"""Step by step: the layers of a decoder run for the newest target tokens alone.

Dimensions: B sentences, W beams per sentence, C entries in use of a sentence's cache, which has
room for more; Ls tokens of the longest source; D = d_model, H = n_heads, K = d_k, U = d_v, V rows
of the output matrix.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.fast.packing import PackedLayout, Rectangle
from nmtkit.model.transformer import DecoderLayer, Transformer

ROOM = 16  # entries by which a cache grows
# Beams whose logits are computed at a time: on a CPU, few enough for its cache.
LOGIT_ROWS = {"cpu": 128, "cuda": 4_096}


class IncrementalDecoder:
    """Computes what `Transformer.decode` computes, one target token at a time.

    All beams of a sentence share one cache, and `_seen` tells which entries belong to a beam's own
    history: to reorder beams is to reorder this table. Before the cache grows, entries that no beam
    sees any more are removed, so it is hardly longer than a single hypothesis.
    """

    def __init__(
        self, model: Transformer, memory: Tensor, src_layout: PackedLayout, forbidden: Tensor
    ) -> None:
        """Start with one beam per sentence of `memory` (S, D), whose layout is one rectangle.

        The model is an accelerated one, and the token ids `forbidden` are never produced.
        """
        self._model, self._forbidden = model, forbidden
        self._matrix = model.output_matrix.to(memory.dtype)
        bias = model.output_bias
        self._bias = None if bias is None else bias.to(memory.dtype)
        (sources,) = src_layout.rectangles
        self._is_source = sources.mask[:, None]  # (B, 1, Ls)
        self._length = 0
        self._caches = [Cache(layer, memory, sources) for layer in model.decoder]
        self._seen = memory.new_zeros(len(sources.mask), 1, 0, dtype=torch.bool)  # (B, W, C)
        self._logits = memory.new_empty(0)  # to overwrite

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token (B, W) of each beam, even if no later step reads it."""
        n_beams = tokens.shape[1]
        self._forget(n_beams)
        newest = torch.eye(n_beams, dtype=torch.bool, device=tokens.device)
        self._seen = torch.cat([self._seen, newest.expand(len(tokens), -1, -1)], 2)
        if neighbourhood := self._model.config.neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood
        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        heads = self._model.config.n_heads
        seen, sources = (
            _bias(each, heads, n_beams, x.dtype) for each in (self._seen, self._is_source)
        )
        for layer, cache in zip(self._model.decoder, self._caches, strict=True):
            memory = cache.src_keys, cache.src_values
            x = layer(x, _Mask(seen, cache.append), memory, _Mask(sources))
        return self._next_token(self._model.decoder_norm(x))

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the places `sentences` (B',) and of each its `beams` (B', W'), in this order."""
        self._seen = self._seen[sentences[:, None], beams]
        if len(sentences) < len(self._is_source):
            self._is_source = self._is_source[sentences]
            places = torch.arange(len(sentences), device=sentences.device)
            moved = (sentences != places).nonzero().squeeze(1)
            for cache in self._caches:
                cache.keep(len(sentences), moved, sentences[moved])

    def _next_token(self, x: Tensor) -> Iterator[Tensor]:
        """Yield log-probabilities (b, W, V) for the decoder output `x` (B, W, D), in one place."""
        n = max(1, LOGIT_ROWS[x.device.type] // x.shape[1])
        for few in torch.split(x, n):
            rows = few.flatten(0, 1)
            if len(rows) > len(self._logits):
                self._logits = x.new_empty(len(rows), len(self._matrix))
            logits = self._logits[: len(rows)]
            if self._bias is None:
                torch.mm(rows, self._matrix.t(), out=logits)
            else:
                torch.addmm(self._bias, rows, self._matrix.t(), out=logits)
            out = logits if logits.dtype == torch.float32 else None
            log_probs = torch.log_softmax(logits, -1, dtype=torch.float32, out=out)
            log_probs.index_fill_(-1, self._forbidden, -torch.inf)
            yield torch.unflatten(log_probs, 0, few.shape[:2])

    def _forget(self, n_beams: int) -> None:
        """Remove the entries that no beam sees, if the cache would have to grow for the newest."""
        if self._seen.shape[2] + n_beams <= self._caches[0].keys.shape[2]:
            return
        is_used = self._seen.any(1)  # (B, C)
        n = int(is_used.sum(1).max())
        entries = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, :n]
        self._seen = self._seen.gather(2, entries[:, None].expand(-1, self._seen.shape[1], -1))
        for cache in self._caches:
            cache.select(entries)


class Cache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, sources: Rectangle) -> None:
        """Compute those of the source; there are none of the target yet."""
        # (B, H, Ls, K) and (B, H, Ls, U) of the source
        self.src_keys, self.src_values = (
            torch.unflatten(sources.pad(each.transpose(0, 1)), 0, (len(sources.mask), -1))
            for each in layer.cross_attention.keys_values(memory)
        )
        # (B, H, room, K) and (B, H, room, U) of the target; the first C are in use
        self.n_entries = 0
        self.keys, self.values = self.src_keys[:, :, :0], self.src_values[:, :, :0]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys (B, H, W, K) and values (B, H, W, U), and return all of them."""
        end = self.n_entries + k.shape[2]
        if (n_more := end - self.keys.shape[2]) > 0:
            n_more += -end % ROOM
            self.keys = pad(self.keys, (0, 0, 0, n_more))
            self.values = pad(self.values, (0, 0, 0, n_more))
        self.keys[:, :, self.n_entries : end] = k
        self.values[:, :, self.n_entries : end] = v
        self.n_entries = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, entries: Tensor) -> None:
        """Move `entries` (B, n) to the front, and forget the others."""
        self.n_entries = entries.shape[1]
        for cached in (self.keys, self.values):
            _, heads, _, width = cached.shape
            places = entries[:, None, :, None].expand(-1, heads, -1, width)
            cached[:, :, : self.n_entries] = cached.gather(2, places)

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move `sentences` to `places`, then keep the first `n` places."""
        for name in ("keys", "values", "src_keys", "src_values"):
            cached = getattr(self, name)
            cached[places] = cached[sentences]
            setattr(self, name, cached[:n])


class _Mask(NamedTuple):
    """What the newest tokens attend to, which are added to their own layer's cache first."""

    bias: Tensor  # (B H, W, C)
    append: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute equation 1 for queries (B, H, W, K): (B, H, W, U)."""
        keys, values = self.append(k, v) if self.append else (k, v)
        queries, k, v = (each.flatten(0, 1) for each in (q, keys, values))
        scores = torch.baddbmm(self.bias, queries, k.mT, alpha=q.shape[-1] ** -0.5)
        attended = torch.bmm(torch.softmax(scores, -1, out=scores), v)
        return torch.unflatten(attended, 0, q.shape[:2])


def _bias(is_seen: Tensor, heads: int, n_beams: int, dtype: torch.dtype) -> Tensor:
    """Return (B H, W, C): 0 for the entries that a beam sees, and -inf for others."""
    zeros = torch.zeros_like(is_seen, dtype=dtype).masked_fill_(~is_seen, -torch.inf)
    return zeros[:, None].expand(-1, heads, n_beams, -1).flatten(0, 1)
