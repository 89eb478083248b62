"""Replace the functions of a model by fast ones, from outside."""

from functools import partial

import torch
from torch import Tensor

from nmtkit.fast.bins import BinLayout, bin_attention, bin_mask
from nmtkit.fast.cpu import Dropout
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.fast.padded_attention import padded_attention
from nmtkit.model.attention import Window
from nmtkit.model.transformer import (
    Embedding,
    LayerNorm,
    Linear,
    Mask,
    MultiHeadAttention,
    Residual,
    Transformer,
)


def accelerate(model: Transformer) -> Transformer:
    """Let `model` compute with the functions of this package, and return it.

    Batches are `PackedLayout`s or `BinLayout`s. Results change by rounding, and with dropout by
    other random numbers.

    Args:
        model: The model, which is changed.
    """
    model.mask = partial(fast_mask, dtype=model.tgt_embedding.dtype)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attention = fast_attention
        if isinstance(module, Embedding | Residual):
            module.dropout = Dropout(module.dropout.p).train(module.training)
    return model


def cast(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Cast the weights of `model` except for its embeddings; it cannot be trained afterwards."""
    for module in model.eval().requires_grad_(False).modules():
        if isinstance(module, Linear | LayerNorm):
            module.to(dtype)
        if isinstance(module, Embedding):
            module.dtype = dtype
    return model


def fast_mask(
    queries: PackedLayout | BinLayout,
    keys: PackedLayout | BinLayout,
    window: Window,
    dtype: torch.dtype,
) -> Mask:
    """Return the mask of `visible`, in the form that `fast_attention` reads.

    Args:
        keys: Layout of the keys, of the same kind.
        window: The positions around its own that a query sees.
        dtype: Data type of the layers.
    """
    if isinstance(queries, BinLayout) and isinstance(keys, BinLayout):
        return bin_mask(queries, keys, window, dtype)
    assert isinstance(queries, PackedLayout)
    assert isinstance(keys, PackedLayout)
    return PackedMask(queries, keys, window)


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """Compute equation 1 by the kind of mask: of bins, of packed sequences, or of a beam search.

    Args:
        q: Queries (H, T, K), or (B, H, Lq, K) of bins.
        k: Keys (H, S, K), or (B, H, Lk, K).
        v: Values (H, S, U), or (B, H, Lk, U).
        mask: A `bin_mask`, a `PackedMask`, or an object with a method `attend`, such as the mask of
            an `IncrementalDecoder`.
        dropout: Probability with which an attention weight is zeroed.
    """
    if isinstance(mask, Tensor):
        return bin_attention(q, k, v, mask, dropout)
    if isinstance(mask, PackedMask):
        # Packed sequences are gathered token by token, so that heads come second.
        attended = padded_attention(
            q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), mask, dropout
        )
        return attended.transpose(0, 1)
    # The masks of a beam search and of recorded attention compute it themselves.
    attended_values: Tensor = mask.attend(q, k, v)
    return attended_values
