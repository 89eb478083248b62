"""Replace the functions of a model by fast ones, from outside."""

from functools import partial

import torch
from torch import Tensor

from nmtkit.fast.cpu import Dropout
from nmtkit.fast.gpu import flash_attention, has_flash_attention
from nmtkit.fast.packing import PackedMask
from nmtkit.fast.rectangles import attend_in_rectangles
from nmtkit.model.transformer import (
    Embedding,
    LayerNorm,
    Linear,
    Mask,
    MultiHeadAttention,
    Residual,
    Transformer,
)


def accelerate(model: Transformer, *, flash: bool = True) -> Transformer:
    """Let `model` compute with the functions of this room, on `PackedLayout`s, and return it.

    Its results change by rounding, and with dropout by other random numbers. Without `flash`,
    attention is in rectangles everywhere.
    """
    model.mask = PackedMask
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attention = fast_attention if flash else partial(fast_attention, flash=False)
        if isinstance(module, Embedding | Residual):
            module.dropout = Dropout(module.dropout.p).train(module.training)
    return model


def cast(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Cast the weights of `model` but its embeddings; it cannot be trained afterwards."""
    for module in model.eval().requires_grad_(False).modules():
        if isinstance(module, Linear | LayerNorm):
            module.to(dtype)
        if isinstance(module, Embedding):
            module.dtype = dtype
    return model


def fast_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0, *, flash: bool = True
) -> Tensor:
    """Compute equation 1 for queries (H, T, K), keys (H, S, K) and values (H, S, U): (H, T, U)."""
    if not isinstance(mask, PackedMask):  # it computes in dimensions of its own
        attended: Tensor = mask.attend(q, k, v)
        return attended
    q, k, v = (each.transpose(0, 1) for each in (q, k, v))
    is_flash = has_flash_attention(q.device, q.dtype, q.shape[-1], v.shape[-1], dropout)
    if flash and is_flash and not torch.are_deterministic_algorithms_enabled():
        return flash_attention(q, k, v, mask).transpose(0, 1)
    return attend_in_rectangles(q, k, v, mask, dropout).transpose(0, 1)
