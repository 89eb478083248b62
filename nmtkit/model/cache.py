"""Keys and values of sentences that are decoded token by token.

Dimensions: B sentences, W beams per sentence, C entries of a sentence's cache, Ls the longest
source, filled up; H = n_heads, K = d_k, U = d_v.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.model.packing import Layout
from nmtkit.model.transformer import DecoderLayer

STEPS = 4  # of which the cache has room for the entries before it is compacted
# The cache has room for a multiple of so many entries; those not in use are hidden. On a CPU,
# torch's softmax of 15 float32 numbers takes 12 times as long as one of 16.
KEYS = 16


class Cohort:
    """Sentences whose decoding began together, and what their beams see.

    All beams of a sentence share one cache. A step appends the keys and values of each beam's
    newest token, and `_seen` tells which entries belong to a beam's own history. To reorder beams
    is to reorder this table: no keys and values are copied. When the cache is full, the entries
    that no beam sees any more are removed. Beams have most of their history in common, so that the
    cache is hardly longer than a single hypothesis.
    """

    def __init__(self, layers: Sequence[DecoderLayer], memory: Tensor, src_layout: Layout) -> None:
        """Start with one beam per sentence.

        Args:
            layers: The decoder's layers.
            memory: Encoder output (S, D) of B source sentences.
            src_layout: Layout of the source sentences.
        """
        (sources,) = src_layout.rectangles
        n_sentences, longest = sources.mask.shape
        src_mask = pad(sources.mask, (0, _whole(longest) - longest))
        self._src_bias = _bias(src_mask[:, None, :], memory.dtype)  # (B, 1, Ls)
        self._seen = memory.new_zeros(n_sentences, 1, KEYS, dtype=torch.bool)  # (B, W, room)
        self._n_entries = 0  # C
        self.newest = slice(0)  # the entries that the step in progress fills
        self.layers = [LayerCache(layer, memory, src_layout) for layer in layers]

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self._seen)

    def add_step(self, n_beams: int, neighbourhood: int | None) -> None:
        """Let each of the `n_beams` of a sentence see one more entry, its own."""
        if self._n_entries + n_beams > self._seen.shape[2]:
            self._compact(STEPS * n_beams)
        self.newest = slice(self._n_entries, self._n_entries + n_beams)
        own = torch.eye(n_beams, dtype=torch.bool, device=self._seen.device)
        self._seen[:, :, self.newest] = own
        self._n_entries += n_beams
        if neighbourhood:
            # A beam sees one entry for each step, in this order.
            n_since = self._seen.flip(2).cumsum(2).flip(2)
            self._seen &= n_since <= neighbourhood

    def biases(self, heads: int) -> tuple[Tensor, Tensor]:
        """Return what is added to scores of entries (B H, W, room) and of sources (B H, W, Ls)."""
        n_beams = self._seen.shape[1]
        bias = _bias(self._seen, self._src_bias.dtype)
        of_entries, of_sources = (
            each[:, None].expand(-1, heads, n_beams, -1).flatten(0, 1)
            for each in (bias, self._src_bias)
        )
        return of_entries, of_sources

    def reorder(self, places: Sequence[int], beams: Tensor) -> None:
        """Keep the sentences at `places` and of each its `beams` (B', W'), in this order.

        All but the last sentences stay where they are, or leave.
        """
        if len(places) == len(self):
            self._seen = self._seen.take_along_dim(beams[:, :, None], 1)
            return
        sentences = torch.tensor(places, device=beams.device)
        self._seen = self._seen[sentences[:, None], beams]
        self._src_bias = self._src_bias[sentences]
        to = [i for i, place in enumerate(places) if i != place]
        moved = torch.tensor(to, dtype=torch.int64, device=beams.device)
        for layer in self.layers:
            layer.keep(len(places), moved, sentences[moved])

    def extend(self, other: "Cohort") -> None:
        """Append the sentences of `other`, which have as many beams; it is not used any more."""
        self._src_bias = _concatenated(self._src_bias, other._src_bias, fill=-torch.inf)
        self._seen = _concatenated(self._seen, other._seen, fill=False)
        self._n_entries = max(self._n_entries, other._n_entries)
        for layer, others in zip(self.layers, other.layers, strict=True):
            layer.extend(others)

    def _compact(self, room: int) -> None:
        """Remove the entries that no beam sees, and make room for others."""
        is_used = self._seen.any(1)  # (B, C)
        self._n_entries = int(is_used.sum(1).max())
        used = is_used.byte().argsort(dim=1, descending=True, stable=True)[:, : self._n_entries]
        n_more = _whole(self._n_entries + room) - self._n_entries
        self._seen = pad(self._seen.take_along_dim(used[:, None], 2), (0, n_more))
        n_src = _whole(int((self._src_bias == 0).sum(2).max()))
        self._src_bias = self._src_bias[:, :, :n_src]
        for layer in self.layers:
            layer.select(pad(used, (0, n_more)))
            layer.shorten(n_src)


class LayerCache:
    """Keys and values of one decoder layer."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, src_layout: Layout) -> None:
        (sources,) = src_layout.rectangles
        n_sentences = len(src_layout.lengths)
        longest = src_layout.max_seqlen
        n_more = _whole(longest) - longest
        # (B, H, Ls, K) and (B, H, Ls, U) of the source
        self._src_keys, self._src_values = (
            _Stored(torch.unflatten(pad(sources.pad(x), (0, 0, 0, n_more)), 0, (n_sentences, -1)))
            for x in layer.cross_attention.keys_values(memory)
        )
        # (B, H, room, K) and (B, H, room, U) of the target; the first C are in use, and the others
        # are finite
        room = n_sentences, layer.self_attention.heads, KEYS
        self._keys = _Stored(memory.new_zeros(*room, layer.self_attention.d_k))
        self._values = _Stored(memory.new_zeros(*room, layer.self_attention.d_v))

    @property
    def attended(self) -> tuple[Tensor, Tensor]:
        """Return keys (B, H, room, K) and values (B, H, room, U) of the target."""
        return self._keys.used, self._values.used

    @property
    def looked_at(self) -> tuple[Tensor, Tensor]:
        """Return keys (B, H, Ls, K) and values (B, H, Ls, U) of the source."""
        return self._src_keys.used, self._src_values.used

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move `sentences` to `places`, then keep the first `n` places."""
        for stored in (self._keys, self._values, self._src_keys, self._src_values):
            stored.keep(n, places, sentences)

    def extend(self, other: "LayerCache") -> None:
        """Append the sentences of `other`."""
        self._keys.extend(other._keys)
        self._values.extend(other._values)
        self._src_keys.extend(other._src_keys)
        self._src_values.extend(other._src_values)

    def select(self, entries: Tensor) -> None:
        """Keep the `entries` (B, C') of each sentence, in this order."""
        self._keys.select(entries)
        self._values.select(entries)

    def shorten(self, n_src: int) -> None:
        """Keep the first `n_src` tokens of each source."""
        self._src_keys.shorten(n_src)
        self._src_values.shorten(n_src)


class _Stored:
    """Keys or values (N, H, C, K), of which the first B sentences are in use."""

    def __init__(self, all_: Tensor) -> None:
        self._all = all_
        self._n = len(all_)

    @property
    def used(self) -> Tensor:
        """Return what is in use (B, H, C, K)."""
        return self._all[: self._n]

    def keep(self, n: int, places: Tensor, sentences: Tensor) -> None:
        """Move `sentences` to `places`, then keep the first `n` places."""
        self._all[places] = self._all[sentences]
        self._n = n

    def extend(self, other: "_Stored") -> None:
        """Append the sentences of `other`: no others are copied if there are enough places."""
        more = other.used
        n = self._n + len(more)
        length, n_entries = more.shape[2], self._all.shape[2]
        if n > len(self._all) or length > n_entries:
            n_entries = max(length, n_entries)
            larger = self._all.new_zeros(
                max(n, len(self._all)), len(more[0]), n_entries, more.shape[3]
            )
            larger[: self._n, :, : self._all.shape[2]] = self.used
            self._all = larger
        self._all[self._n : n, :, :length] = more
        self._all[self._n : n, :, length:] = 0
        self._n = n

    def select(self, entries: Tensor) -> None:
        """Keep the `entries` (B, C') of each sentence, in this order."""
        n_places, heads, n_entries, width = self._all.shape
        starts = torch.arange(0, self._n * heads * n_entries, n_entries, device=entries.device)
        rows = (starts.view(self._n, heads, 1) + entries[:, None]).flatten()
        selected = self._all.new_empty(n_places, heads, entries.shape[1], width)
        out = selected[: self._n].flatten(0, 2)
        torch.index_select(self.used.flatten(0, 2), 0, rows, out=out)
        self._all = selected

    def shorten(self, n: int) -> None:
        """Keep the first `n` entries of each sentence."""
        if n < self._all.shape[2]:
            self._all = self._all[:, :, :n].contiguous()


def _concatenated(a: Tensor, b: Tensor, fill: float) -> Tensor:
    """Return `a` (B, W, C) and `b` (B', W, C') as one tensor, filled up to the longer one."""
    n = max(a.shape[2], b.shape[2])
    return torch.cat([pad(each, (0, n - each.shape[2]), value=fill) for each in (a, b)])


def _whole(n_keys: int) -> int:
    """Return the next multiple of `KEYS`."""
    return n_keys + -n_keys % KEYS


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where the `mask` is True and -inf elsewhere."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
