"""Attention over packed rows as matrix products over padded rectangles, for any device.

Dimensions: T query tokens, S key and value tokens; H heads of widths K = d_k and U = d_v. In a
rectangle: n sentences, at most Lq queries and Lk keys per sentence.
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from nmtkit.fast.cpu import random_scale
from nmtkit.fast.packing import PackedMask, Rectangle
from nmtkit.model.attention import Window


def attend_in_rectangles(
    q: Tensor, k: Tensor, v: Tensor, mask: PackedMask, dropout: float
) -> Tensor:
    """Compute equation 1 for queries (T, H, K), keys (S, H, K) and values (S, H, U): (T, H, U)."""
    dtype = q.dtype
    if q.is_cpu and mask.queries.cuts:
        # oneDNN compiles and keeps code for each new shape of a batched product in 16 bits. That
        # pays for the one large rectangle of a batch of like length, but not for many small ones.
        dtype = torch.promote_types(dtype, torch.float32)
    wide = (each.to(dtype) for each in (q, k, v))
    attended: Tensor = _InRectangles.apply(*wide, mask, dropout)  # type: ignore[no-untyped-call]
    return attended.to(q.dtype)


class _InRectangles(torch.autograd.Function):
    """Equation 1, one rectangle after another, with a gradient that copies less than autograd's."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor, mask: PackedMask, dropout: float
    ) -> Tensor:
        out = q.new_empty(*q.shape[:2], v.shape[-1])
        rectangles = mask.rectangles
        kept: list[Tensor | None] = []
        for queries, keys in rectangles:
            qs, ks, vs = queries.pad(q), keys.pad(k), keys.pad(v)
            scores = _scaled_product(qs, ks.mT, q.shape[-1])
            _hide(scores, keys, mask.window)
            weights = torch.softmax(scores, -1, out=scores)
            scale = random_scale(weights, dropout) if dropout else None
            queries.unpad(_scaled(weights, scale).bmm(vs), out)
            kept += [qs, ks, vs, weights, scale]
        ctx.save_for_backward(*kept)  # type: ignore[arg-type]
        ctx.rectangles = rectangles  # type: ignore[attr-defined]
        ctx.n_keys = len(k)  # type: ignore[attr-defined]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors  # type: ignore[attr-defined]
        n_queries, heads, d_v = grad_out.shape
        n_keys, d_k = ctx.n_keys, kept[0].shape[-1]  # type: ignore[attr-defined]
        grad_q = grad_out.new_empty(n_queries, heads, d_k)
        grad_k = grad_out.new_empty(n_keys, heads, d_k)
        grad_v = grad_out.new_empty(n_keys, heads, d_v)
        for i, (queries, keys) in enumerate(ctx.rectangles):  # type: ignore[attr-defined]
            qs, ks, vs, weights, scale = kept[5 * i : 5 * i + 5]
            grad = queries.pad(grad_out)
            if not queries.is_full:
                of_sentences = grad.view(len(queries.mask), -1, *grad.shape[1:])
                of_sentences.masked_fill_(~queries.mask[:, None, :, None], 0.0)
            keys.unpad(_scaled(weights, scale).mT.bmm(grad), grad_v)
            grad_weights = _scaled(grad.bmm(vs.mT), scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            queries.unpad(_scaled_product(grad_scores, ks, d_k), grad_q)
            keys.unpad(_scaled_product(grad_scores.mT, qs, d_k), grad_k)
        return grad_q, grad_k, grad_v, None, None


def _scaled(weights: Tensor, scale: Tensor | None) -> Tensor:
    return weights if scale is None else weights * scale


def _scaled_product(a: Tensor, b: Tensor, d_k: int) -> Tensor:
    """Compute A B / sqrt(d_k) for batches of matrices."""
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=d_k**-0.5)


def _hide(scores: Tensor, keys: Rectangle, window: Window) -> None:
    """Set `scores` (n H, Lq, Lk) to the lowest number where a query must not attend."""
    before, after = window
    # -inf would make weights of 0 / 0 of padding that sees nothing at all.
    lowest, ones = torch.finfo(scores.dtype).min, torch.ones_like(scores[0], dtype=torch.bool)
    if after is not None:
        scores.masked_fill_(ones.triu(keys.n_before + after + 1), lowest)
    if before is not None:
        scores.masked_fill_(ones.tril(keys.n_before - before - 1), lowest)
    # Padding comes after all tokens of a sentence, so a causal mask hides it too.
    is_hidden = after == 0 and keys.n_before == 0
    if not keys.is_full and not is_hidden:
        of_sentences = scores.view(len(keys.mask), -1, *scores.shape[1:])
        of_sentences.masked_fill_(~keys.mask[:, None, None, :], lowest)
