"""Attention over packed sequences, as matrix products over padded batches, for any device.

Dimensions: T query tokens, S key and value tokens; H heads of widths K = d_k and U = d_v. In a
padded batch: n sentences, Lq queries and Lk keys in the longest of them.
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from nmtkit.fast.cpu import random_scale
from nmtkit.fast.packing import PackedMask, PaddedBatch
from nmtkit.model.attention import Window

N_SAVED = 5  # tensors that a padded batch saves for the backward pass


def padded_attention(q: Tensor, k: Tensor, v: Tensor, mask: PackedMask, dropout: float) -> Tensor:
    """Compute equation 1 for packed sequences.

    Args:
        q: Queries (T, H, K).
        k: Keys (S, H, K).
        v: Values (S, H, U).
        mask: The layouts of queries and keys.
        dropout: Probability with which an attention weight is zeroed (section 6.3).

    Returns:
        The attended values (T, H, U).
    """
    dtype = q.dtype
    if q.is_cpu and mask.queries.cuts:
        # oneDNN compiles and keeps code for each new shape of a batched product in 16 bits. That
        # pays for the one padded batch of sentences of like length, but not for many small ones.
        dtype = torch.promote_types(dtype, torch.float32)
    attended: Tensor = _PaddedAttention.apply(  # type: ignore[no-untyped-call]
        q.to(dtype), k.to(dtype), v.to(dtype), mask, dropout
    )
    return attended.to(q.dtype)


class _PaddedAttention(torch.autograd.Function):
    """Equation 1, one padded batch after another.

    Its gradient copies less than that of autograd, which would allocate a tensor of zeros for each
    padded batch.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor, mask: PackedMask, dropout: float
    ) -> Tensor:
        out = q.new_empty(*q.shape[:2], v.shape[-1])  # (T, H, U)
        batches = mask.padded_batches
        saved: list[Tensor | None] = []
        for queries, keys in batches:
            padded_q = queries.pad(q)  # (n H, Lq, K)
            padded_k = keys.pad(k)  # (n H, Lk, K)
            padded_v = keys.pad(v)  # (n H, Lk, U)
            scores = _scaled_product(padded_q, padded_k.mT, q.shape[-1])  # (n H, Lq, Lk)
            _hide(scores, keys, mask.window)
            weights = torch.softmax(scores, -1, out=scores)
            scale = random_scale(weights, dropout) if dropout else None
            queries.unpad(_scaled(weights, scale).bmm(padded_v), out)
            saved += [padded_q, padded_k, padded_v, weights, scale]
        ctx.save_for_backward(*saved)  # type: ignore[arg-type]
        ctx.batches = batches  # type: ignore[attr-defined]
        ctx.n_keys = len(k)  # type: ignore[attr-defined]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # type: ignore[attr-defined]
        n_queries, heads, d_v = grad_out.shape
        n_keys = ctx.n_keys  # type: ignore[attr-defined]
        d_k = saved[0].shape[-1]
        # Every token is in a padded batch, so that all values are written below.
        grad_q = grad_out.new_empty(n_queries, heads, d_k)
        grad_k = grad_out.new_empty(n_keys, heads, d_k)
        grad_v = grad_out.new_empty(n_keys, heads, d_v)
        for i, (queries, keys) in enumerate(ctx.batches):  # type: ignore[attr-defined]
            padded_q, padded_k, padded_v, weights, scale = saved[N_SAVED * i : N_SAVED * (i + 1)]
            grad = queries.pad(grad_out)  # (n H, Lq, U)
            if not queries.is_full:
                # Padding repeats the gradient of the last token, which must count once.
                by_sentence = grad.view(len(queries.mask), -1, *grad.shape[1:])
                by_sentence.masked_fill_(~queries.mask[:, None, :, None], 0.0)
            keys.unpad(_scaled(weights, scale).mT.bmm(grad), grad_v)
            grad_weights = _scaled(grad.bmm(padded_v.mT), scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            queries.unpad(_scaled_product(grad_scores, padded_k, d_k), grad_q)
            keys.unpad(_scaled_product(grad_scores.mT, padded_q, d_k), grad_k)
        return grad_q, grad_k, grad_v, None, None


def _scaled(weights: Tensor, scale: Tensor | None) -> Tensor:
    """Apply the dropout of attention weights, if there is any."""
    return weights if scale is None else weights * scale


def _scaled_product(a: Tensor, b: Tensor, d_k: int) -> Tensor:
    """Compute A B / sqrt(d_k) for batches of matrices."""
    # One call scales the product while it writes it; `beta=0` ignores the first argument.
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=d_k**-0.5)


def _hide(scores: Tensor, keys: PaddedBatch, window: Window) -> None:
    """Set scores to the lowest number where a query must not attend, in place.

    Args:
        scores: Scores (n H, Lq, Lk).
        keys: The padded batch of the keys.
        window: The positions around its own that a query sees.
    """
    before, after = window
    # -inf would make weights of 0 / 0 of padding that sees nothing at all.
    lowest = torch.finfo(scores.dtype).min
    ones = torch.ones_like(scores[0], dtype=torch.bool)
    if after is not None:
        scores.masked_fill_(ones.triu(keys.n_before + after + 1), lowest)
    if before is not None:
        scores.masked_fill_(ones.tril(keys.n_before - before - 1), lowest)
    # Padding comes after all tokens of a sentence, so that a causal mask hides it too.
    is_hidden = after == 0 and keys.n_before == 0
    if not keys.is_full and not is_hidden:
        by_sentence = scores.view(len(keys.mask), -1, *scores.shape[1:])
        by_sentence.masked_fill_(~keys.mask[:, None, None, :], lowest)
