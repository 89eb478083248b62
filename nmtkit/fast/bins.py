"""Dense bins: whole sentence pairs in tensors of one constant shape, for GPUs.

A bin holds sentences end to end; what is left of it is padding, which no token attends to. All
tensors of a training have the same shape (B, L), so that one compiled function, one CUDA graph and
one attention kernel serve them all.

Dimensions: B bins of L tokens a side; H heads of widths K = d_k and U = d_v; D = d_model.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from nmtkit.model.attention import Window, visible

PADDING = 0  # the sentence number of positions without a token
# Without this, torch prefers cuDNN on GPUs since the H100 (sdp_utils.cpp, `priority_order`). With a
# mask, its gradient has been NaN for some lengths (pytorch#196678, open), and it refuses some sizes
# of heads. Flash attention takes no mask.
ATTENTION_KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class BinLayout:
    """The sentences in bins."""

    sentences: Tensor  # (B, L) int32: numbers of the sentences of a bin, from 1; or PADDING
    positions: Tensor  # (B, L) int32: index of each token in its sentence

    @property
    def max_seqlen(self) -> int:
        """Return L, which no sentence exceeds."""
        return self.positions.shape[1]


def bin_mask(queries: BinLayout, keys: BinLayout, window: Window, dtype: torch.dtype) -> Tensor:
    """Return the bias of attention scores (B, 1, Lq, Lk): 0 where a query may attend, else -inf.

    It is what the kernels add, so no layer has to convert a mask. The 1 stands for all heads.
    Padding may attend to everything in its bin, because a softmax over zero keys is NaN. No
    token attends to padding, so nothing depends on what is computed there.

    Args:
        queries: Layout of the queries.
        keys: Layout of the keys.
        window: The positions around its own that a query sees.
        dtype: Data type of the scores.
    """
    is_padding = queries.sentences == PADDING  # (B, Lq)
    mask = visible(queries, keys, window) | is_padding[:, :, None]  # (B, Lq, Lk)
    return torch.where(mask[:, None], 0.0, -math.inf).to(dtype)


def bin_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """Compute equation 1 with a kernel of torch.

    Args:
        q: Queries (B, H, Lq, K).
        k: Keys (B, H, Lk, K).
        v: Values (B, H, Lk, U).
        mask: A `bin_mask` (B, 1, Lq, Lk).
        dropout: Probability with which an attention weight is zeroed (section 6.3).

    Returns:
        The attended values (B, H, Lq, U).
    """
    with sdpa_kernel(ATTENTION_KERNELS):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
