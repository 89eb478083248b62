"""Scaled dot-product attention (section 3.2.1), and what each token may see."""

import math

from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.model.layout import Layout


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V (equation 1): (..., Lq, d_v).

    Queries `q` are (..., Lq, d_k), keys `k` (..., Lk, d_k) and values `v` (..., Lk, d_v).
    `mask`, broadcastable to (..., Lq, Lk), is True where a query may attend; None means everywhere.
    `dropout` is the probability with which each weight is zeroed (section 6.3).
    """
    return F.dropout(attention_weights(q, k, mask), dropout) @ v


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)): (..., Lq, Lk), each row of which sums to 1."""
    scores: Tensor = (q * k.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1)


# The number of positions before and after its own that a query sees; None means all.
Window = tuple[int | None, int | None]


def window_of(*, causal: bool, neighbourhood: int | None = None) -> Window:
    """Return what a query sees around its own position.

    The paper centers the neighbourhood (section 4) on it; of an even number, the larger half comes
    before. What a decoder sees, the paper does not say: here it is as many positions, up to its
    own.
    """
    if neighbourhood is None:
        return None, 0 if causal else None
    if causal:
        return neighbourhood - 1, 0
    return neighbourhood // 2, (neighbourhood - 1) // 2


def visible(queries: Layout, keys: Layout, window: Window) -> Tensor:
    """Return the mask (..., T, S): a query sees the keys of its own sentence within `window`."""
    before, after = window
    offset = keys.positions[..., None, :] - queries.positions[..., :, None]
    mask = queries.sentences[..., :, None] == keys.sentences[..., None, :]
    if before is not None:
        mask &= offset >= -before
    if after is not None:
        mask &= offset <= after
    return mask
