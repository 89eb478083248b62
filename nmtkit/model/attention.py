"""Multi-head attention over packed rows (section 3.2.1).

Dimensions: T query tokens, S key and value tokens; H heads of widths K = d_k and U = d_v. In a
rectangle: n sentences, at most Lq queries and Lk keys per sentence.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from nmtkit.model.dropout import random_scale
from nmtkit.model.packing import Layout, Rectangle

MAX_FUSED_WIDTH = 256  # maximum head width of flash attention 2


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_layout: Layout,
    k_layout: Layout,
    *,
    causal: bool,
    neighbourhood: int | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Let each query attend to the keys and values of its own sentence.

    Args:
        q: Queries (T, H, K).
        k: Keys (S, H, K).
        v: Values (S, H, U).
        q_layout: Layout of the queries.
        k_layout: Layout of keys and values, with the same sentences and cuts.
        causal: If True, no token attends to later tokens. The two layouts must then be the same.
        neighbourhood: Number of positions that a query sees (section 4), with the two layouts the
            same. None means all of its sentence.
        dropout: Probability with which each weight is zeroed (section 6.3).

    Returns:
        Attended values (T, H, U).
    """
    is_fused = has_fused_kernel(q.device, q.dtype, q.shape[-1], v.shape[-1], dropout)
    window = _window(neighbourhood, causal=causal)
    if is_fused and not torch.are_deterministic_algorithms_enabled():
        return _by_offsets(q, k, v, q_layout, k_layout, window)
    return _in_rectangles(q, k, v, q_layout, k_layout, window, dropout)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)) V (equation 1).

    Args:
        q: Queries (..., Lq, K).
        k: Keys (..., Lk, K).
        v: Values (..., Lk, U).
        mask: Broadcastable to (..., Lq, Lk), True where a query may attend. None means everywhere.

    Returns:
        Attended values (..., Lq, U).
    """
    return attention_weights(q, k, mask) @ v


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """Compute softmax(Q K^T / sqrt(d_k)): (..., Lq, Lk), each row of which sums to 1."""
    scores: Tensor = (q * k.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores.masked_fill_(~mask, -math.inf)
    return scores.softmax(-1)


def self_attention_mask(
    n: int, *, causal: bool, neighbourhood: int | None, device: torch.device | None = None
) -> Tensor:
    """Return (n, n), True where a query (row) of a sentence of `n` tokens sees a key (column)."""
    before, after = _window(neighbourhood, causal=causal)
    everything = torch.ones(n, n, dtype=torch.bool, device=device)
    return everything.triu(-before if before >= 0 else -n).tril(after if after >= 0 else n)


def has_fused_kernel(
    device: torch.device, dtype: torch.dtype, d_k: int, d_v: int, dropout: float
) -> bool:
    """Return whether flash attention supports these inputs; its gradient is not deterministic.

    torch's kernel has no dropout.
    """
    is_wide_enough = d_k == d_v <= MAX_FUSED_WIDTH and d_k % 8 == 0
    is_supported = dtype == torch.bfloat16 and is_wide_enough and dropout == 0.0
    return device.type == "cuda" and is_supported


# The number of tokens before and after its own that a query sees. -1 means all, as in torch.
Window = tuple[int, int]


def _window(neighbourhood: int | None, *, causal: bool) -> Window:
    """Return what a query sees around its own position.

    The paper centers the neighbourhood on it; of an even number, the larger half comes before. What
    a decoder sees, the paper does not say: here it is as many positions, up to its own.
    """
    if neighbourhood is None:
        return (-1, 0) if causal else (-1, -1)
    if causal:
        return neighbourhood - 1, 0
    return neighbourhood // 2, (neighbourhood - 1) // 2


def _by_offsets(
    q: Tensor, k: Tensor, v: Tensor, q_layout: Layout, k_layout: Layout, window: Window
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # imports torch's compiler, 1.4 s

    attended = varlen_attn(
        q,
        k,
        v,
        q_layout.cu_seqlens,
        k_layout.cu_seqlens,
        q_layout.max_seqlen,
        k_layout.max_seqlen,
        window_size=window,
    )
    assert isinstance(attended, Tensor)
    return attended


def _in_rectangles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_layout: Layout,
    k_layout: Layout,
    window: Window,
    dropout: float,
) -> Tensor:
    dtype = _faster_dtype(q, q_layout)
    wide = (each.to(dtype) for each in (q, k, v))
    attended: Tensor = _PackedAttention.apply(*wide, q_layout, k_layout, window, dropout)  # type: ignore[no-untyped-call]
    return attended.to(q.dtype)


def _faster_dtype(rows: Tensor, layout: Layout) -> torch.dtype:
    """Return the precision in which rectangles are processed.

    On a CPU, oneDNN compiles and keeps code for each new shape of a batched product in 16 bits,
    for 0.5 ms. That pays for the one large rectangle of a batch of like length (5 % of a step of
    base), but not for the many small ones of other batches, which are processed in float32.
    """
    if rows.is_cpu and layout.cuts:
        return torch.promote_types(rows.dtype, torch.float32)
    return rows.dtype


class _PackedAttention(torch.autograd.Function):
    """Equation 1, one rectangle after another, with a hand-written gradient.

    At the sentence lengths of text, plain matrix products are 2.8 times as fast as the fused kernel
    on a CPU. The hand-written gradient avoids a copy of each tensor that autograd would make.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_layout: Layout,
        k_layout: Layout,
        window: Window,
        dropout: float,
    ) -> Tensor:
        out = q.new_empty(*q.shape[:2], v.shape[-1])
        rectangles = list(_pairs(q_layout, k_layout, window))
        kept: list[Tensor | None] = []
        for queries, keys in rectangles:
            qs, ks, vs = queries.pad(q), keys.pad(k), keys.pad(v)
            scores = _scaled_product(qs, ks.mT, q.shape[-1])
            _hide(scores, keys, window)
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
            _zero_padding(grad, queries)
            keys.unpad(_scaled(weights, scale).mT.bmm(grad), grad_v)
            grad_weights = _scaled(grad.bmm(vs.mT), scale)
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
            queries.unpad(_scaled_product(grad_scores, ks, d_k), grad_q)
            keys.unpad(_scaled_product(grad_scores.mT, qs, d_k), grad_k)
        return grad_q, grad_k, grad_v, *[None] * 4


def _pairs(
    q_layout: Layout, k_layout: Layout, window: Window
) -> Iterable[tuple[Rectangle, Rectangle]]:
    """Return rectangles of queries, each with the rectangle of the keys that it needs."""
    before, after = window
    if before < 0 or after < 0:
        return zip(q_layout.rectangles, k_layout.rectangles, strict=True)
    return q_layout.bands(before, after)  # self-attention: queries and keys have one layout


def _scaled(weights: Tensor, scale: Tensor | None) -> Tensor:
    """Apply dropout, if there is any."""
    return weights if scale is None else weights * scale


def _scaled_product(a: Tensor, b: Tensor, d_k: int) -> Tensor:
    """Compute A B / sqrt(d_k) for batches of matrices."""
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=d_k**-0.5)


def _hide(scores: Tensor, keys: Rectangle, window: Window) -> None:
    """Set `scores` (n H, Lq, Lk) to the lowest number where a query must not attend.

    -inf would make weights of 0 / 0 of padding that sees nothing at all.
    """
    before, after = window
    lowest = torch.finfo(scores.dtype).min
    if after >= 0:
        scores.masked_fill_(_ones_like(scores[0]).triu(keys.n_before + after + 1), lowest)
    if before >= 0:
        scores.masked_fill_(_ones_like(scores[0]).tril(keys.n_before - before - 1), lowest)
    # Padding comes after all tokens of a sentence, so a causal mask hides it too.
    is_hidden = after == 0 and keys.n_before == 0
    if not keys.is_full and not is_hidden:
        of_sentences = scores.view(len(keys.mask), -1, *scores.shape[1:])
        of_sentences.masked_fill_(~keys.mask[:, None, None, :], lowest)


def _ones_like(tensor: Tensor) -> Tensor:
    return torch.ones_like(tensor, dtype=torch.bool)


def _zero_padding(padded: Tensor, rectangle: Rectangle) -> None:
    """Set the padding of `padded` (n H, L, U) to zero."""
    if not rectangle.is_full:
        of_sentences = padded.view(len(rectangle.mask), -1, *padded.shape[1:])
        of_sentences.masked_fill_(~rectangle.mask[:, None, :, None], 0.0)
