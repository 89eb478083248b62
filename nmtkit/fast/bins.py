"""Dense bins: whole sentence pairs in tensors of one constant shape, for GPUs.

A bin holds sentences end to end; what is left of it is padding, which no token attends to. All
tensors of a training have the same shape (B, L), so that one compiled function, one CUDA graph and
one attention kernel serve them all.

Dimensions: B bins of L tokens a side; H heads of widths K = d_k and U = d_v; D = d_model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.model.attention import Window, visible
from nmtkit.model.transformer import DecoderLayer, KeysValues

PADDING = 0  # the sentence number of positions without a token


@dataclass(frozen=True)
class BinLayout:
    """The sentences in bins."""

    sentences: Tensor  # (B, L) int32: numbers of the sentences of a bin, from 1; or PADDING
    positions: Tensor  # (B, L) int32: index of each token in its sentence

    @property
    def max_seqlen(self) -> int:
        """Return L, which no sentence exceeds."""
        return self.positions.shape[1]


def bin_mask(queries: BinLayout, keys: BinLayout, window: Window) -> Tensor:
    """Return the mask (B, 1, Lq, Lk), True where a query may attend; the 1 is for all heads.

    Padding may attend to everything in its bin, because a softmax over zero keys is NaN. No
    token attends to padding, so that nothing depends on what is computed there.
    """
    is_padding = queries.sentences == PADDING  # (B, Lq)
    mask = visible(queries, keys, window) | is_padding[:, :, None]  # (B, Lq, Lk)
    return mask[:, None]


def bin_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
    """Compute equation 1 with the kernel that torch chooses for this device and precision.

    Args:
        q: Queries (B, H, Lq, K).
        k: Keys (B, H, Lk, K).
        v: Values (B, H, Lk, U).
        mask: A `bin_mask` (B, 1, Lq, Lk).
        dropout: Probability with which an attention weight is zeroed (section 6.3).

    Returns:
        The attended values (B, H, Lq, U).
    """
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


def merged_keys_values(decoder: Sequence[DecoderLayer], memory: Tensor) -> KeysValues:
    """Project the memory (B, L, D) for all layers of the decoder in a single matrix product.

    Returns:
        Keys (B, H, L, K) and values (B, H, L, U) of each layer, equal to those of `keys_values`.
    """
    # The weights are concatenated at every step, since they are separate parameters of the model.
    projections = [layer.cross_attention.kv for layer in decoder]
    weight = torch.cat([projection.weight for projection in projections]).to(memory.dtype)
    bias = None
    if projections[0].bias is not None:
        bias = torch.cat([projection.bias for projection in projections]).to(memory.dtype)
    merged = F.linear(memory, weight, bias)  # (B, L, layers x H x (K + U))
    memories = []
    for layer, part in zip(decoder, merged.chunk(len(decoder), dim=-1), strict=True):
        cross = layer.cross_attention
        k, v = cross.split_heads(part, cross.d_k, cross.d_v)
        memories.append((k, v))
    return memories
