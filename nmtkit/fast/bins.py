"""Attention over packed rows in bins that hold whole sentences, by torch's own kernels.

Nothing uses it until it was measured on a GPU. Dimensions: N sentences, T query tokens, S key and
value tokens; B bins; H heads of widths K = d_k and U = d_v.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.fast.packing import PackedMask

SIZE = 128  # tokens of a bin: a tile of flash attention, most of which one sentence would waste


@dataclass(frozen=True)
class Bins:
    """Where the tokens of two packed rows stand, with a sentence of both in the same bin."""

    queries: Tensor  # (T,) bin * SIZE + column
    keys: Tensor  # (S,)
    mask: Tensor  # (B, 1, SIZE, SIZE) True where a query sees a key; padding sees all

    @classmethod
    def of(cls, seen: PackedMask) -> "Bins":
        """Put each sentence, of at most SIZE tokens, into the first bin with room for it."""
        layouts = seen.queries, seen.keys
        lengths = torch.stack([layout.lengths for layout in layouts], 1).numpy()  # (N, 2)
        room = np.full((len(lengths), 2), SIZE)
        starts = np.empty_like(lengths, dtype=np.int64)
        for i, both in enumerate(lengths):
            first = int((room >= both).all(1).argmax())
            starts[i] = (first + 1) * SIZE - room[first]
            room[first] -= both
        n_places = SIZE * int((room < SIZE).any(1).sum())
        places, marks = [], []
        for layout, begins in zip(layouts, torch.from_numpy(starts).unbind(1), strict=True):
            places.append(begins[layout.sentences] + layout.positions)
            whose = torch.stack([layout.sentences, layout.positions], 1)
            marks.append(torch.full((n_places, 2), -1).index_copy(0, places[-1], whose))
        of_queries, of_keys = (each.view(-1, SIZE, 2) for each in marks)
        distance = of_keys[:, None, :, 1] - of_queries[:, :, None, 1]
        before, after = (SIZE if each is None else each for each in seen.window)
        mask = of_keys[:, None, :, 0] == of_queries[:, :, None, 0]
        mask &= (distance >= -before) & (distance <= after)
        mask |= of_queries[:, :, None, 0] < 0  # or else a weight is 0 / 0
        return cls(places[0], places[1], mask[:, None])


def attend_in_bins(q: Tensor, k: Tensor, v: Tensor, bins: Bins) -> Tensor:
    """Compute equation 1 for queries (T, H, K), keys (S, H, K) and values (S, H, U): (T, H, U)."""
    n_places, width = len(bins.mask) * SIZE, max(q.shape[-1], v.shape[-1])
    spread = []
    for row, places in ((q, bins.queries), (k, bins.keys), (v, bins.keys)):
        wide = F.pad(row, (0, width - row.shape[-1]))  # kernels want heads of one width
        empty = wide.new_zeros(n_places, *wide.shape[1:])
        in_bins = empty.index_copy(0, places, wide).view(-1, SIZE, *wide.shape[1:])
        spread.append(in_bins.transpose(1, 2))
    (qs, ks, vs), scale = spread, q.shape[-1] ** -0.5
    attended = F.scaled_dot_product_attention(qs, ks, vs, attn_mask=bins.mask, scale=scale)
    return attended.transpose(1, 2).flatten(0, 1)[bins.queries][..., : v.shape[-1]]
