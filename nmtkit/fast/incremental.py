"""Incremental decoding: the layers of a decoder run only for the newest target tokens.

Dimensions: B sentences, W beams per sentence, C entries in use of a sentence's cache, whose
capacity is larger; Ls tokens of the longest source; D = d_model, H = n_heads, K = d_k, U = d_v, V
rows of the output matrix.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.fast.packing import PackedLayout, PaddedBatch
from nmtkit.model.transformer import DecoderLayer, Transformer

CACHE_GROWTH = 16  # the capacity of a cache is a multiple of this
# Beams whose logits are computed at a time: on a CPU, few enough for its cache.
LOGIT_ROWS = {"cpu": 128, "cuda": 4_096}


class IncrementalDecoder:
    """Computes the same as `Transformer.decode`, one target token at a time.

    All beams of a sentence share one cache, and a table records which of its entries belong to the
    history of a beam. To reorder beams, only this table is reordered. Before the cache grows,
    entries that no beam sees any more are removed, so that it is hardly longer than a single
    hypothesis.
    """

    def __init__(
        self, model: Transformer, memory: Tensor, src_layout: PackedLayout, forbidden: Tensor
    ) -> None:
        """Start with one beam per sentence.

        Args:
            model: An accelerated model.
            memory: The encoder output (S, D).
            src_layout: The layout of the source, a single padded batch.
            forbidden: Ids of tokens that are never produced.
        """
        self._model = model
        self._forbidden = forbidden
        self._matrix = model.output_matrix.to(memory.dtype)
        bias = model.output_bias
        self._bias = None if bias is None else bias.to(memory.dtype)
        (sources,) = src_layout.padded_batches
        self._is_source = sources.mask[:, None]  # (B, 1, Ls)
        self._length = 0
        self._caches = [Cache(layer, memory, sources) for layer in model.decoder]
        self._seen = memory.new_zeros(len(sources.mask), 1, 0, dtype=torch.bool)  # (B, W, C)
        self._logits = memory.new_empty(0)  # to overwrite

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token (B, W) of every beam, and yield what `_next_log_probs` yields.

        The tokens are appended even if the result is not read.
        """
        n_beams = tokens.shape[1]
        self._remove_unseen(n_beams)
        # A beam sees its own newest token, not those of the other beams.
        newest = torch.eye(n_beams, dtype=torch.bool, device=tokens.device)
        self._seen = torch.cat([self._seen, newest.expand(len(tokens), -1, -1)], 2)
        neighbourhood = self._model.config.neighbourhood
        if neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood

        position = torch.full_like(tokens, self._length)
        self._length += 1
        x = self._model.tgt_embedding(tokens, position, self._length)  # (B, W, D)
        heads = self._model.config.n_heads
        tgt_bias = _bias(self._seen, heads, n_beams, x.dtype)
        src_mask = _Mask(_bias(self._is_source, heads, n_beams, x.dtype))
        for layer, cache in zip(self._model.decoder, self._caches, strict=True):
            memory = cache.src_keys, cache.src_values
            x = layer(x, _Mask(tgt_bias, cache.append), memory, src_mask)
        return self._next_log_probs(self._model.decoder_norm(x))

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep some of the sentences and beams.

        Args:
            sentences: Places of the sentences to keep (B',), in their new order.
            beams: Beams of these sentences to keep (B', W'), in their new order.
        """
        self._seen = self._seen[sentences[:, None], beams]
        if len(sentences) < len(self._is_source):
            self._is_source = self._is_source[sentences]
            # Only the caches of sentences at new places are copied.
            places = torch.arange(len(sentences), device=sentences.device)
            moved = (sentences != places).nonzero().squeeze(1)
            for cache in self._caches:
                cache.keep(len(sentences), moved, sentences[moved])

    def _next_log_probs(self, x: Tensor) -> Iterator[Tensor]:
        """Compute the log-probabilities of the next tokens.

        Args:
            x: Decoder output (B, W, D).

        Yields:
            Log-probabilities (b, W, V) of the first b sentences, then of the next ones. All of them
            are in the same memory, so that one must be used before the next is computed.
        """
        n = max(1, LOGIT_ROWS[x.device.type] // x.shape[1])
        for part in torch.split(x, n):
            rows = part.flatten(0, 1)  # (b W, D)
            if len(rows) > len(self._logits):
                self._logits = x.new_empty(len(rows), len(self._matrix))
            logits = self._logits[: len(rows)]  # (b W, V)
            if self._bias is None:
                torch.mm(rows, self._matrix.t(), out=logits)
            else:
                torch.addmm(self._bias, rows, self._matrix.t(), out=logits)
            out = logits if logits.dtype == torch.float32 else None
            log_probs = torch.log_softmax(logits, -1, dtype=torch.float32, out=out)
            log_probs.index_fill_(-1, self._forbidden, -torch.inf)
            yield torch.unflatten(log_probs, 0, part.shape[:2])

    def _remove_unseen(self, n_beams: int) -> None:
        """Remove the entries that no beam sees, if the cache would have to grow for the newest."""
        if self._seen.shape[2] + n_beams <= self._caches[0].keys.shape[2]:
            return
        is_used = self._seen.any(1)  # (B, C)
        n = int(is_used.sum(1).max())
        entries = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, :n]  # (B, n)
        self._seen = self._seen.gather(2, entries[:, None].expand(-1, self._seen.shape[1], -1))
        for cache in self._caches:
            cache.select(entries)


class Cache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, sources: PaddedBatch) -> None:
        """Compute the keys and values of the source; there are none of the target yet.

        Args:
            memory: The encoder output (S, D).
            sources: The padded batch of the source.
        """
        n_sentences = len(sources.mask)
        k, v = layer.cross_attention.keys_values(memory)  # (H, S, K) and (H, S, U)
        # Of the source: (B, H, Ls, K) and (B, H, Ls, U)
        self.src_keys = torch.unflatten(sources.pad(k.transpose(0, 1)), 0, (n_sentences, -1))
        self.src_values = torch.unflatten(sources.pad(v.transpose(0, 1)), 0, (n_sentences, -1))
        # Of the target: (B, H, capacity, K) and (B, H, capacity, U); the first C are in use
        self.n_entries = 0
        self.keys = self.src_keys[:, :, :0]
        self.values = self.src_values[:, :, :0]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys (B, H, W, K) and values (B, H, W, U), and return all of them."""
        end = self.n_entries + k.shape[2]
        n_more = end - self.keys.shape[2]
        if n_more > 0:
            n_more += -end % CACHE_GROWTH
            self.keys = pad(self.keys, (0, 0, 0, n_more))
            self.values = pad(self.values, (0, 0, 0, n_more))
        self.keys[:, :, self.n_entries : end] = k
        self.values[:, :, self.n_entries : end] = v
        self.n_entries = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, entries: Tensor) -> None:
        """Move `entries` (B, n) to the front, and remove the others."""
        self.n_entries = entries.shape[1]
        for cached in (self.keys, self.values):
            _, heads, _, width = cached.shape
            places = entries[:, None, :, None].expand(-1, heads, -1, width)
            cached[:, :, : self.n_entries] = cached.gather(2, places)

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move sentences to other places, then keep the first `n` places.

        Args:
            n: Number of sentences to keep.
            places: New places (m,), all below `n`.
            sentences: Present places (m,) of the sentences that move there.
        """
        for name in ("keys", "values", "src_keys", "src_values"):
            cached = getattr(self, name)
            cached[places] = cached[sentences]
            setattr(self, name, cached[:n])


class _Mask(NamedTuple):
    """A mask for the newest tokens, which first adds them to their own layer's cache."""

    bias: Tensor  # (B H, W, C)
    append: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute equation 1 for queries (B, H, W, K): (B, H, W, U)."""
        if self.append is not None:
            k, v = self.append(k, v)
        queries = q.flatten(0, 1)  # (B H, W, K)
        keys = k.flatten(0, 1)  # (B H, C, K)
        values = v.flatten(0, 1)  # (B H, C, U)
        scores = torch.baddbmm(self.bias, queries, keys.mT, alpha=q.shape[-1] ** -0.5)
        attended = torch.bmm(torch.softmax(scores, -1, out=scores), values)
        return torch.unflatten(attended, 0, q.shape[:2])


def _bias(is_seen: Tensor, heads: int, n_beams: int, dtype: torch.dtype) -> Tensor:
    """Return the bias of attention scores: 0 for entries that a beam sees, and -inf for others.

    Args:
        is_seen: The entries that a beam sees (B, W, C), or all beams of a sentence (B, 1, C).
        heads: Number of heads H.
        n_beams: Number of beams W.
        dtype: Data type of the scores.

    Returns:
        The bias (B H, W, C).
    """
    zeros = torch.zeros_like(is_seen, dtype=dtype).masked_fill_(~is_seen, -torch.inf)
    return zeros[:, None].expand(-1, heads, n_beams, -1).flatten(0, 1)
