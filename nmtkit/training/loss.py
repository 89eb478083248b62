"""Label-smoothed cross-entropy (section 5.4) that never holds all logits.

Dimensions: T target tokens, D = d_model, V rows of the output matrix.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn.functional import linear

# Rows of logits in memory at a time: few enough for the last cache of a CPU; on a GPU, an update.
CHUNK_TOKENS = {"cpu": 512, "cuda": 32_768}
# The gradient of the output matrix sums over all tokens of a chunk, before any loss scale: a sum of
# 32,768 numbers of 2 would be infinite in float16. Divided by this, they may reach 128.
FLOAT16_DIVISOR = 64
NO_TARGET = -1  # the target at positions of padding

Softmax = Callable[[Tensor, torch.dtype], Tensor] | None  # `softmax_`, compiled


class Losses(NamedTuple):
    """Sums over the tokens of a batch, in nats."""

    smoothed: Tensor  # () the loss that training minimizes
    nll: Tensor  # () negative log-likelihood without smoothing, for perplexity; carries no gradient


def softmax_(z: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn logits `z` (R, V) into probabilities in place; return log sum exp (R,) in `dtype`.

    Compiled, this is two passes over `z` and no copy.
    """
    wide = z.to(dtype)
    log_sum = wide.logsumexp(1)
    z.copy_((wide - log_sum[:, None]).exp())
    return log_sum


def smoothed_cross_entropy(
    hidden: Tensor,
    matrix: Tensor,
    targets: Tensor,
    label_smoothing: float,
    softmax: Softmax = None,
    bias: Tensor | None = None,
    matrix_copy: Tensor | None = None,
) -> Losses:
    """Compute the label-smoothed cross-entropy of softmax(hidden matrix^T), summed over targets.

    The target distribution is (1 - eps) on the target plus eps / V on every row (Szegedy et al.
    2015, which the paper cites).
    Deviation: the paper's published code puts eps / (V - 1) on every row but the target's.

    Args:
        hidden: Decoder output (T, D), whose precision is that of the product.
        matrix: Pre-softmax matrix (V, D), float32, as is its gradient.
        targets: Token ids (T,), int64. Those that are `NO_TARGET` are ignored.
        label_smoothing: The probability eps that is spread evenly over all V rows.
        softmax: `softmax_`, compiled; None: the softmax of torch.
        bias: Added to the logits (V,), float32, if the model has one.
        matrix_copy: `matrix` in the precision of `hidden`, if it has been cast already.
    """
    # Inside an autograd.Function, gradients are always enabled.
    needs_gradient = torch.is_grad_enabled()
    smoothed, nll = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, matrix, bias, matrix_copy, targets, label_smoothing, softmax, needs_gradient
    )
    return Losses(smoothed, nll)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Take the gradient in the forward pass, where a chunk's probabilities are at hand.

    With p = softmax(z), z = h W^T + b, the loss of a token with target y is
    -z_y + log sum exp z + eps (z_y - mean z), and its gradient in z is p - (1 - eps) [y] - eps / V,
    whose last term is the same in every entry of every token.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        matrix_copy: Tensor | None,
        targets: Tensor,
        eps: float,
        softmax: Softmax,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        n_rows = len(matrix)
        chunk = CHUNK_TOKENS[hidden.device.type]
        is_real = targets != NO_TARGET
        hidden = hidden * is_real[:, None]  # all logits of padding are zero then, or the bias
        weight = matrix.to(hidden.dtype) if matrix_copy is None else matrix_copy
        mean_row = matrix.mean(0).to(hidden.dtype)
        added = None if bias is None else bias.to(hidden.dtype)
        mean_bias = 0.0 if bias is None else bias.mean()
        smoothed = hidden.new_zeros((), dtype=torch.float64)
        nll = hidden.new_zeros((), dtype=torch.float64)
        if needs_gradient:
            grad_hidden = torch.empty_like(hidden)  # (T, D)
            grad_bias = None if bias is None else torch.zeros_like(bias)
        divisor = FLOAT16_DIVISOR if hidden.dtype == torch.float16 else 1
        for start in range(0, len(hidden), chunk):
            rows = slice(start, start + chunk)  # R of them
            h = hidden[rows]  # (R, D)
            y = targets[rows, None].clamp_min(0)  # (R, 1)
            z = linear(h, weight, added)  # (R, V)
            z_y = z.gather(1, y).squeeze(1)  # (R,) before z is overwritten
            if softmax:
                log_sum = softmax(z, matrix.dtype)
                p = z
            else:
                z_max = z.amax(1)
                p = torch.softmax(z, 1, out=z)
                # The largest p is exp(z_max - log_sum), at least 1 / V: it can't underflow.
                log_sum = z_max.to(matrix.dtype) - p.amax(1).to(matrix.dtype).log()
            # In float64, the order of the sums makes no visible difference.
            token_nll = (log_sum - z_y) * is_real[rows]
            nll += token_nll.sum(dtype=torch.float64)
            to_mean = z_y - h @ mean_row
            if bias is not None:
                to_mean = (to_mean - mean_bias) * is_real[rows]
            smoothed += (token_nll + eps * to_mean).sum(dtype=torch.float64)
            if needs_gradient:
                # On a CPU, `scatter_` would copy all of `p` if it has 16 bits.
                p[torch.arange(len(p), device=p.device), y[:, 0]] += eps - 1
                grad_hidden[rows] = linear(p, weight.t())
                if divisor != 1:
                    h = h / divisor
                if start == 0:
                    grad_matrix = (p.t() @ h).to(matrix.dtype)  # (V, D)
                elif weight is matrix:
                    grad_matrix.addmm_(p.t(), h)
                else:
                    grad_matrix.add_(p.t() @ h)
                if grad_bias is not None:
                    grad_bias.add_(is_real[rows].to(p.dtype) @ p)
            del z, p  # before the next chunk's
        if needs_gradient:
            if divisor != 1:
                grad_matrix.mul_(divisor)
            # The term of the smoothing is the same for all tokens, and added once.
            grad_hidden.sub_(eps * mean_row).mul_(is_real[:, None])
            grad_matrix.sub_((eps / n_rows) * hidden.sum(0, dtype=matrix.dtype))
            if grad_bias is not None:
                grad_bias.sub_((eps / n_rows) * is_real.sum(dtype=matrix.dtype))
            ctx.save_for_backward(grad_hidden, grad_matrix, grad_bias)  # type: ignore[arg-type]
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(
        ctx: FunctionCtx, grad_smoothed: Tensor, _grad_nll: Tensor
    ) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_matrix, grad_bias = ctx.saved_tensors  # type: ignore[attr-defined]
        scale = grad_smoothed.to(grad_matrix.dtype)
        if grad_bias is not None:
            grad_bias.mul_(scale)
        no_gradients = (None,) * 5  # of the other arguments
        return grad_hidden.mul_(scale), grad_matrix.mul_(scale), grad_bias, *no_gradients
