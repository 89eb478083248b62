"""Scaled dot-product attention (section 3.2.1), and its masks."""

import math
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V (equation 1): (..., Lq, d_v).

    Args:
        q: Queries (..., Lq, d_k).
        k: Keys (..., Lk, d_k).
        v: Values (..., Lk, d_v).
        mask: Broadcastable to (..., Lq, Lk), True where a query may attend; None: everywhere.
        dropout: Probability of zeroing a weight (section 6.3).
    """
    return F.dropout(attention_weights(q, k, mask), dropout) @ v


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)): (..., Lq, Lk), whose rows sum to 1.

    Args:
        q: Queries (..., Lq, d_k).
        k: Keys (..., Lk, d_k).
        mask: As for `attention`.
    """
    # Scaling the queries instead of the scores takes fewer operations.
    scores: Tensor = (q * k.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1)


class Layout(Protocol):
    """The sentences of a batch of tokens, whose shape is (T,) or (B, L).

    Only attention sees the other tokens of a sentence. All other computations for a token depend
    only on this token.
    """

    @property
    def positions(self) -> Tensor:
        """The position of every token in its sentence, from 0, in the shape of the tokens."""

    @property
    def sentences(self) -> Tensor:
        """The number of the sentence of every token, in the shape of the tokens."""

    @property
    def max_seqlen(self) -> int:
        """Return a length that no sentence exceeds."""


# The number of positions before and after its own that a query sees; None means all.
Window = tuple[int | None, int | None]


def attention_window(*, causal: bool, neighbourhood: int | None = None) -> Window:
    """Return the window of a query around its own position.

    The paper centers the neighbourhood (section 4) on it; if the number is even, the larger half
    comes before. For a decoder, where the paper does not define it, the window is the same number
    of positions, up to the query's own.

    Args:
        causal: Whether later positions are hidden, as in the decoder.
        neighbourhood: The number of positions r; None: all.
    """
    if neighbourhood is None:
        return None, 0 if causal else None
    if causal:
        return neighbourhood - 1, 0
    return neighbourhood // 2, (neighbourhood - 1) // 2


def visible(queries: Layout, keys: Layout, window: Window) -> Tensor:
    """Return the mask (..., T, S): a query sees the keys of its own sentence within a window.

    Args:
        window: The positions that a query sees, relative to its own.
    """
    before, after = window
    # Positive offsets are keys after the query.
    offset = keys.positions[..., None, :] - queries.positions[..., :, None]
    mask = queries.sentences[..., :, None] == keys.sentences[..., None, :]
    if before is not None:
        mask &= offset >= -before
    if after is not None:
        mask &= offset <= after
    return mask
