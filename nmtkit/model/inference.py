"""A model prepared for inference: weights cast once, and laid out as matrix products read them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from nmtkit.kernels.norm import add_norm
from nmtkit.model.products import MIN_WIDTH, is_avx2, is_intel, is_zen5, onednn_linear
from nmtkit.model.transformer import Embedding, LayerNorm, Linear, Residual, Sublayer, Transformer

ROWS = 64  # the output matrix is filled up to a multiple of so many
# A matrix that is worth packing has so many weights where MKL does not use AVX-512, and so many
# outputs where there is none.
MIN_PACKED, MIN_OUTPUTS = 2**17, 6_000
MIN_QUANTUM = 16  # rows; see _quantum


def prepare_for_inference(model: Transformer, dtype: torch.dtype) -> None:
    """Cast the weights of `model` to `dtype`, and lay them out as products read them.

    The model cannot be trained afterwards.
    """
    _prepare(model, dtype)
    model.inference_output = FixedOutput(model.output_matrix, dtype)


def _prepare(module: nn.Module, dtype: torch.dtype) -> None:
    for name, child in module.named_children():
        if isinstance(child, Linear):
            setattr(module, name, FixedLinear(child.weight, child.bias, dtype))
        elif isinstance(child, Residual) and child.is_post:
            setattr(module, name, FixedResidual(child, dtype))
        elif isinstance(child, LayerNorm):
            child.to(dtype)
        elif isinstance(child, Embedding):
            child.dtype = dtype
        else:
            _prepare(child, dtype)


class FixedLinear(nn.Module):
    """x W^T + b with weights that do not change.

    On a CPU, plain products lay out weights and activations anew each time. Those with weights that
    oneDNN has packed do not, but are compiled for each number of rows, which takes 0.2 ms or more;
    so these are filled up to one of few numbers. They are also faster in themselves where MKL is
    slow: on a Zen 5 core, 256 rows times weights of 128 x 128 reach 185 GFLOP/s, with MKL 106, and
    1,024 rows times weights of 768 x 256 257 and 111. On an Intel Emerald Rapids core, it is MKL
    that is faster with weights of less than 512 columns, 16.4 ms instead of 20 for 1,024 rows of
    the output matrix of a 256-wide model, and it need not copy weights that are stored by columns.
    So it is on a Zen 3 core, except for output matrices: 256 rows times weights of 1,024 x 256
    reach 90 GFLOP/s instead of 84, and 1,024 rows 91 instead of 81, but 32 rows times 9,792 x 256
    61 instead of 65, and times 36,864 x 512 49 instead of 64.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """Take the weights of a `Linear`, without their gradients."""
        super().__init__()
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        is_on_cpu = weight.device.type == "cpu"
        has_onednn = is_on_cpu and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self.is_packed = has_onednn and (dtype != torch.float32 or _is_worth_packing(weight))
        if self.is_packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)
        elif is_on_cpu:
            self.weight = self.weight.t().contiguous().t()

    def forward(self, x: Tensor) -> Tensor:
        """Transform `x` (..., in)."""
        if not self.is_packed:
            return linear(x, self.weight, self.bias)
        rows = x.flatten(0, -2)
        n_more = -len(rows) % _quantum(len(rows))
        if not n_more:
            return onednn_linear(x, self.weight, self.bias)
        filled = rows.new_empty(len(rows) + n_more, rows.shape[1])  # whatever stands there
        filled[: len(rows)] = rows
        out = onednn_linear(filled, self.weight, self.bias)
        return torch.unflatten(out[: len(rows)], 0, x.shape[:-1])


def _quantum(n_rows: int) -> int:
    """Return what the number of rows is filled up to a multiple of.

    It is `MIN_QUANTUM`, or at most an eighth of the rows: 32 numbers up to 1,024.
    """
    return int(max(MIN_QUANTUM, 2 ** (n_rows.bit_length() - 4)))


def _is_worth_packing(weight: Tensor) -> bool:
    """Return whether oneDNN is faster than MKL with a float32 `weight` (out, in)."""
    if is_intel():
        return min(weight.shape) >= MIN_WIDTH
    if is_avx2():
        return len(weight) >= MIN_OUTPUTS
    return is_zen5() or weight.numel() >= MIN_PACKED


class FixedResidual(nn.Module):
    """LayerNorm(x + Sublayer(x)) (section 3.1)."""

    def __init__(self, residual: Residual, dtype: torch.dtype) -> None:
        """Take the weights of a `Residual`, without their gradients."""
        super().__init__()
        self.weight = residual.norm.weight.detach().to(dtype)
        self.bias = residual.norm.bias.detach().to(dtype)
        self.epsilon = residual.norm.eps

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Wrap `sublayer` around `x` (..., D)."""
        return add_norm(x, sublayer(x), self.weight, self.bias, self.epsilon)


class FixedOutput(FixedLinear):
    """The pre-softmax matrix, filled up with rows whose logits are -inf."""

    def __init__(self, matrix: Tensor, dtype: torch.dtype) -> None:
        """Take the `matrix` (V, D)."""
        n_more = -len(matrix) % ROWS
        bias = pad(matrix.new_zeros(len(matrix)), (0, n_more), value=-torch.inf)
        super().__init__(pad(matrix, (0, 0, 0, n_more)), bias, dtype)
        self.n_rows = len(matrix)

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute logits of `x` (R, D); see `Transformer.logits`."""
        if self.is_packed or x.dtype != torch.float32:
            return super().forward(x)  # a new tensor: oneDNN's product cannot overwrite one
        # Adding the bias would take another pass over the logits.
        logits = torch.mm(x, self.weight.t(), out=out)
        logits[:, self.n_rows :] = -torch.inf
        return logits
