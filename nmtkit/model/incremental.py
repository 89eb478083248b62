"""Incremental decoding: one target token at a time, with cached keys and values.

Dimensions: B sentences, W beams per sentence, C entries in use of a sentence's cache, which has
room for a multiple of `KEYS`; Ls the longest source, filled up to such a multiple; D = d_model,
H = n_heads, K = d_k, U = d_v, V rows of the output matrix.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.kernels.attention import KEYS, Mask, append, attend, move, select
from nmtkit.kernels.search import log_softmax
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import DecoderLayer, Transformer, split_heads

# Beams whose logits are computed at a time: on a CPU, few enough for its cache. 192 and 256 are as
# fast as 128, and take 90 MB more.
LOGIT_ROWS = {"cpu": 128, "cuda": 4_096}


class IncrementalDecoder:
    """Computes what `Transformer.decode` computes, one target token at a time.

    All beams of a sentence share one cache. A step appends the keys and values of each beam's
    newest token, and `_seen` tells which entries belong to a beam's own history. To reorder beams
    is to reorder this table: no keys and values are copied. Before the cache grows, the entries
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
        n_sentences, longest = sources.mask.shape
        self._is_source = pad(sources.mask, (0, -longest % KEYS))[:, None]  # (B, 1, Ls)
        self._length = 0
        self._caches = [LayerCache(layer, memory, src_layout) for layer in _layers(model)]
        self._seen = memory.new_zeros(n_sentences, 1, KEYS, dtype=torch.bool)  # (B, W, room)
        self._n_entries = 0  # C
        self._log_probs = memory.new_empty(0, dtype=torch.float32)  # to overwrite

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token of each beam.

        Args:
            tokens: Token ids (B, W).

        Returns:
            Log-probabilities of the next token, float32: (b, W, V) of the first b sentences, then
            of the next ones. The tokens are appended even if nobody reads them.
        """
        n_beams = tokens.shape[1]
        self._make_room(n_beams)
        newest = slice(self._n_entries, self._n_entries + n_beams)
        self._seen[:, :, newest] = torch.eye(n_beams, dtype=torch.bool, device=tokens.device)
        self._n_entries += n_beams
        if neighbourhood := self._model.config.neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood
        seen = Mask(self._seen[:, :, : _whole(self._n_entries)])
        sources = Mask(self._is_source)
        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        for layer, cache in zip(_layers(self._model), self._caches, strict=True):
            x = _layer_step(layer, x, cache, newest.start, seen, sources)
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
        """Yield log-probabilities (b, W, V) for the decoder output `x` (B, W, D).

        Those of all beams would not fit into the processor's cache. For the same reason, the logits
        of some beams overwrite those of others.
        """
        n = max(1, LOGIT_ROWS[x.device.type] // x.shape[1])
        for few in torch.split(x, n):
            rows = few.flatten(0, 1)
            out = self._log_probs[: len(rows)] if len(rows) <= len(self._log_probs) else None
            logits = self._model.logits(rows, out)
            if logits.dtype == torch.float32:
                out = logits
            elif out is None:
                out = torch.empty_like(logits, dtype=torch.float32)
            if len(out) > len(self._log_probs):
                self._log_probs = out
            log_softmax(logits, self._forbidden, out)
            yield torch.unflatten(out, 0, few.shape[:2])

    def _make_room(self, n_beams: int) -> None:
        """Make room for entries of the newest tokens, if these begin another `KEYS` entries.

        Entries that no beam sees are removed first.
        """
        if _whole(self._n_entries + n_beams) == _whole(self._n_entries):
            return
        is_used = self._seen.any(1)  # (B, room)
        counts = is_used.sum(1)
        n = self._n_entries = int(counts.max())
        entries = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, :n].contiguous()
        of_beams = entries[:, None].expand(-1, self._seen.shape[1], -1)
        self._seen[:, :, :n] = self._seen.gather(2, of_beams)
        self._seen[:, :, n:] = False
        for cache in self._caches:
            select(cache.keys, cache.values, entries, counts)
        if n + n_beams > self._seen.shape[2]:
            n_more = _whole(n + n_beams) - self._seen.shape[2]
            self._seen = pad(self._seen, (0, n_more))
            for cache in self._caches:
                cache.keys = pad(cache.keys, (0, n_more))
                cache.values = pad(cache.values, (0, 0, 0, n_more))


class LayerCache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, src_layout: Layout) -> None:
        (sources,) = src_layout.rectangles
        n_sentences = len(src_layout.lengths)
        n_more = -sources.mask.shape[1] % KEYS
        keys, values = (
            torch.unflatten(pad(sources.pad(each), (0, 0, 0, n_more)), 0, (n_sentences, -1))
            for each in layer.cross_attention.keys_values(memory)
        )
        # (B, H, K, Ls) and (B, H, Ls, U) of the source
        self.src_keys, self.src_values = keys.transpose(2, 3).contiguous(), values
        # (B, H, K, room) and (B, H, room, U) of the target; the first C are in use, and the others
        # are finite
        heads = values.shape[1]
        self.keys = memory.new_zeros(n_sentences, heads, layer.self_attention.d_k, KEYS)
        self.values = memory.new_zeros(n_sentences, heads, KEYS, layer.self_attention.d_v)

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move `sentences` to `places`, then keep the first `n` places."""
        for name in ("keys", "values", "src_keys", "src_values"):
            cached = getattr(self, name)
            move(cached, places, sentences)
            setattr(self, name, cached[:n])


def _whole(n_keys: int) -> int:
    """Return the next multiple of `KEYS`."""
    return n_keys + -n_keys % KEYS


def _layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]


def _layer_step(
    layer: DecoderLayer, x: Tensor, cache: LayerCache, newest: int, seen: Mask, sources: Mask
) -> Tensor:
    """Apply a DecoderLayer to the newest position: (B, W, D) to (B, W, D).

    Args:
        layer: The layer.
        x: Its input.
        cache: Its cache.
        newest: The first entry of the cache that this step fills.
        seen: Entries of the cache that each beam sees.
        sources: Source tokens, which all beams see.
    """

    def attend_(y: Tensor) -> Tensor:
        q, k, v = layer.self_attention.project(y)
        append(k, v, cache.keys, cache.values, newest)
        attended = attend(q, cache.keys, cache.values, seen)
        return layer.self_attention.out(attended)  # type: ignore[no-any-return]

    def look(y: Tensor) -> Tensor:
        q = split_heads(layer.cross_attention.q(y), layer.cross_attention.heads)
        attended = attend(q, cache.src_keys, cache.src_values, sources)
        return layer.cross_attention.out(attended)  # type: ignore[no-any-return]

    residual_attend, residual_look, residual_feed = layer.residuals
    x = residual_attend(x, attend_)
    x = residual_look(x, look)
    return residual_feed(x, layer.feed_forward)  # type: ignore[no-any-return]
