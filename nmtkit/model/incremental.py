"""Incremental decoding: one target token at a time, with cached keys and values.

Dimensions: B sentences, W beams per sentence, C entries of a sentence's cache, Ls the longest
source, filled up; D = d_model, H = n_heads, K = d_k, U = d_v, V rows of the output matrix.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.model.packing import Layout
from nmtkit.model.transformer import DecoderLayer, Transformer, split_heads

STEPS = 4  # of which the cache has room for the entries before it is compacted
# The cache has room for a multiple of so many entries; those not in use are hidden. On a CPU,
# torch's softmax of 15 float32 numbers takes 12 times as long as one of 16.
KEYS = 16
# Beams whose logits are computed at a time: on a CPU, few enough for its cache. 192 and 256 are as
# fast as 128, and take 90 MB more.
LOGIT_ROWS = {"cpu": 128, "cuda": 4_096}


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
        n_sentences, longest = sources.mask.shape
        src_mask = pad(sources.mask, (0, _whole(longest) - longest))
        self._src_bias = _bias(src_mask[:, None, :], memory.dtype)  # (B, 1, Ls)
        self._length = 0
        self._caches = [LayerCache(layer, memory, src_layout) for layer in _layers(model)]
        self._seen = memory.new_zeros(n_sentences, 1, KEYS, dtype=torch.bool)  # (B, W, room)
        self._n_entries = 0  # C
        self._logits = memory.new_empty(0)  # see _next_token

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token of each beam.

        Args:
            tokens: Token ids (B, W).

        Returns:
            Log-probabilities of the next token, float32: (b, W, V) of the first b sentences, then
            of the next ones. The tokens are appended even if nobody reads them.
        """
        n_beams = tokens.shape[1]
        if self._n_entries + n_beams > self._seen.shape[2]:
            self._compact(STEPS * n_beams)
        newest = slice(self._n_entries, self._n_entries + n_beams)
        self._seen[:, :, newest] = torch.eye(n_beams, dtype=torch.bool, device=tokens.device)
        self._n_entries += n_beams
        if neighbourhood := self._model.config.neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood
        bias = _bias(self._seen, self._src_bias.dtype)
        bias, src_bias = (
            each[:, None].expand(-1, self._model.config.n_heads, n_beams, -1).flatten(0, 1)
            for each in (bias, self._src_bias)
        )
        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        for layer, cache in zip(_layers(self._model), self._caches, strict=True):
            x = _layer_step(layer, x, cache, newest, bias, src_bias)
        return self._next_token(self._model.decoder_norm(x))

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the places `sentences` (B',) and of each its `beams` (B', W'), in this order."""
        self._seen = self._seen[sentences[:, None], beams]
        if len(sentences) < len(self._src_bias):
            self._src_bias = self._src_bias[sentences]
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
            out = self._logits[: len(rows)] if len(rows) <= len(self._logits) else None
            logits = self._model.logits(rows, out)
            if out is None:
                self._logits = logits
            torch.log_softmax(logits, -1, out=logits).index_fill_(-1, self._forbidden, -torch.inf)
            yield torch.unflatten(logits, 0, few.shape[:2])

    def _compact(self, room: int) -> None:
        """Remove the entries that no beam sees, and make room for others."""
        is_used = self._seen.any(1)  # (B, C)
        self._n_entries = int(is_used.sum(1).max())
        used = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, : self._n_entries]
        n_more = _whole(self._n_entries + room) - self._n_entries
        self._seen = pad(self._seen.take_along_dim(used[:, None], 2), (0, n_more))
        for cache in self._caches:
            cache.select(pad(used, (0, n_more)))


class LayerCache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, src_layout: Layout) -> None:
        (sources,) = src_layout.rectangles
        n_sentences = len(src_layout.lengths)
        longest = src_layout.max_seqlen
        n_more = _whole(longest) - longest
        # (B, H, Ls, K) and (B, H, Ls, U) of the source
        self.src_keys, self.src_values = (
            torch.unflatten(pad(sources.pad(each), (0, 0, 0, n_more)), 0, (n_sentences, -1))
            for each in layer.cross_attention.keys_values(memory)
        )
        heads = self.src_keys.shape[1]
        # (B, H, room, K) and (B, H, room, U) of the target; the first C are in use, and the others
        # are finite
        room = n_sentences, heads, KEYS
        self.keys = memory.new_zeros(*room, layer.self_attention.d_k)
        self.values = memory.new_zeros(*room, layer.self_attention.d_v)

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


def _whole(n_keys: int) -> int:
    """Return the next multiple of `KEYS`."""
    return n_keys + -n_keys % KEYS


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where the `mask` is True and -inf elsewhere."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def _attention(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k) + bias) V (equation 1).

    `attention` computes the same. Here the first product adds the bias, and no keys and values are
    copied: 0.35 s instead of 0.54 for 600 sentences with a 128-wide model in float32 on a CPU,
    measured when only entries in use were read. In 16 bits, oneDNN would copy these, so that the
    whole room is read.

    Args:
        q: Queries (B, H, W, K).
        keys: Keys (B, H, C, K).
        values: Values (B, H, C, U).
        bias: What is added to the scores (B H, W, C).

    Returns:
        Attended values (B, W, H U).
    """
    k, v = keys.flatten(0, 1), values.flatten(0, 1)
    scores = torch.baddbmm(bias, q.flatten(0, 1), k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    attended = torch.bmm(torch.softmax(scores, -1, out=scores), v)
    return torch.unflatten(attended, 0, q.shape[:2]).transpose(1, 2).flatten(2)


def _layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]


def _layer_step(
    layer: DecoderLayer, x: Tensor, cache: LayerCache, newest: slice, bias: Tensor, src_bias: Tensor
) -> Tensor:
    """Apply a DecoderLayer to the newest position: (B, W, D) to (B, W, D).

    Args:
        layer: The layer.
        x: Its input.
        cache: Its cache.
        newest: The entries of the cache that this step fills.
        bias: What is added to the scores of entries (B H, W, room).
        src_bias: What is added to the scores of source tokens (B H, W, Ls).
    """

    def attend(y: Tensor) -> Tensor:
        q, k, v = (each.transpose(1, 2) for each in layer.self_attention.project(y))
        cache.keys[:, :, newest] = k
        cache.values[:, :, newest] = v
        attended = _attention(q, cache.keys, cache.values, bias)
        return layer.self_attention.out(attended)  # type: ignore[no-any-return]

    def look(y: Tensor) -> Tensor:
        q = split_heads(layer.cross_attention.q(y), layer.cross_attention.heads).transpose(1, 2)
        attended = _attention(q, cache.src_keys, cache.src_values, src_bias)
        return layer.cross_attention.out(attended)  # type: ignore[no-any-return]

    residual_attend, residual_look, residual_feed = layer.residuals
    x = residual_attend(x, attend)
    x = residual_look(x, look)
    return residual_feed(x, layer.feed_forward)  # type: ignore[no-any-return]
