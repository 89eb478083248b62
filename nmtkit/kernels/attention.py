"""Attention of the newest tokens to caches (equation 1).

Dimensions: B sentences, W beams per sentence, C entries in use of a sentence's cache, which has
room for more; H heads of widths K = d_k and U = d_v.
"""

import torch
from torch import Tensor

from nmtkit.kernels.library import kernel_for

KEYS = 16  # entries are read in multiples of so many


class Mask:
    """Which entries of a cache each beam sees: (B, W, C), or (B, 1, C) if all see the same."""

    def __init__(self, is_seen: Tensor) -> None:
        self.is_seen = is_seen
        self._bias: Tensor | None = None  # shared by all layers

    def bias(self, n_beams: int, heads: int, dtype: torch.dtype) -> Tensor:
        """Return (B H, W, C): 0 for entries that are seen, and -inf for others."""
        if self._bias is None:
            zeros = torch.zeros_like(self.is_seen, dtype=dtype)
            bias = zeros.masked_fill_(~self.is_seen, -torch.inf)
            self._bias = bias[:, None].expand(-1, heads, n_beams, -1).flatten(0, 1)
        return self._bias


def attend(q: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V (equation 1) for the entries in use.

    Args:
        q: Queries (B, W, H, K).
        keys: Keys (B, H, K, room).
        values: Values (B, H, room, U).
        mask: What is seen. C is a multiple of `KEYS`.

    Returns:
        Attended values (B, W, H U).
    """
    n_keys = mask.is_seen.shape[2]
    n_sentences, n_beams, heads, d_k = q.shape
    room, d_v = values.shape[2:]
    kernel = kernel_for("attend", q)
    if kernel is None:
        k, v = keys[..., :n_keys].flatten(0, 1), values[:, :, :n_keys].flatten(0, 1)
        bias = mask.bias(n_beams, heads, q.dtype)
        queries = q.transpose(1, 2).flatten(0, 1)
        scores = torch.baddbmm(bias, queries, k, alpha=d_k**-0.5)
        attended = torch.bmm(torch.softmax(scores, -1, out=scores), v)
        return torch.unflatten(attended, 0, (n_sentences, heads)).transpose(1, 2).flatten(2)
    assert keys.is_contiguous()
    assert values.is_contiguous()
    out = q.new_empty(n_sentences, n_beams, heads * d_v)
    of_beams = mask.is_seen.stride(1) if mask.is_seen.shape[1] > 1 else 0
    kernel(
        q.data_ptr(),
        q.flatten(0, 1).stride(0),
        keys.data_ptr(),
        values.data_ptr(),
        mask.is_seen.data_ptr(),
        mask.is_seen.stride(0),
        of_beams,
        out.data_ptr(),
        n_sentences,
        n_beams,
        heads,
        d_k,
        d_v,
        room,
        n_keys,
    )
    return out


def append(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, first: int) -> None:
    """Write the keys (B, W, H, K) and values (B, W, H, U) of the newest tokens to a cache.

    They become its entries from `first` on.
    """
    n_sentences, n_beams, heads, d_k = k.shape
    room, d_v = values.shape[2:]
    kernel = kernel_for("append", k)
    if kernel is None:
        keys[..., first : first + n_beams] = k.permute(0, 2, 3, 1)
        values[:, :, first : first + n_beams] = v.transpose(1, 2)
        return
    assert keys.is_contiguous()
    assert values.is_contiguous()
    assert first + n_beams <= room
    kernel(
        k.data_ptr(),
        v.data_ptr(),
        k.flatten(0, 1).stride(0),
        keys.data_ptr(),
        values.data_ptr(),
        first,
        n_sentences,
        n_beams,
        heads,
        d_k,
        d_v,
        room,
    )


def select(keys: Tensor, values: Tensor, entries: Tensor, counts: Tensor) -> None:
    """Move entries of each sentence's cache to its front.

    Args:
        keys: Keys (B, H, K, room).
        values: Values (B, H, room, U).
        entries: The entries to move (B, n), int64.
        counts: How many of them count (B,), int64. These ascend.
    """
    n_sentences, heads, d_k, room = keys.shape
    n, d_v = entries.shape[1], values.shape[3]
    kernel = kernel_for("select", keys)
    if kernel is None:
        of_keys = entries[:, None, None].expand(-1, heads, d_k, -1)
        of_values = entries[:, None, :, None].expand(-1, heads, -1, d_v)
        keys[..., :n] = keys.gather(3, of_keys)
        values[:, :, :n] = values.gather(2, of_values)
        return
    assert keys.is_contiguous()
    assert values.is_contiguous()
    kernel(
        keys.data_ptr(),
        values.data_ptr(),
        entries.data_ptr(),
        counts.data_ptr(),
        n,
        n_sentences,
        heads,
        d_k,
        d_v,
        room,
    )


def move(cached: Tensor, places: Tensor, sentences: Tensor) -> None:
    """Move `sentences` (n,) of a cache (B, ...), contiguous, to other `places` (n,)."""
    kernel = kernel_for("move", cached)
    if kernel is None:
        cached[places] = cached[sentences]
        return
    assert cached.is_contiguous()
    kernel(
        cached.data_ptr(),
        places.data_ptr(),
        sentences.data_ptr(),
        len(places),
        cached[0].numel(),
    )
