"""Settings of oneDNN, and random numbers for dropout, that make training faster on a CPU."""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

# oneDNN compiles a product in 16 bits for each number of rows, and by default keeps the last 1,024.
# A layer needs fewer than 64. The variable is read at the first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


class Dropout(nn.Dropout):
    """Dropout whose random numbers are drawn by `random_scale` on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to `x`, of any shape."""
        if not self.training or self.p == 0.0:
            return x
        if x.is_cpu and not torch.compiler.is_compiling():  # `random_` cannot be compiled
            return x * random_scale(x, self.p)
        return F.dropout(x, self.p)


def random_scale(x: Tensor, p: float) -> Tensor:
    """Return a tensor of the shape of `x`: 0 with probability `p`, and otherwise 1 / (1 - p).

    On a CPU, where `x` must be, `F.dropout` draws one random number per element, in a single
    thread. Here one 64-bit number decides four elements, so `p` is rounded to a multiple of
    1 / 65,536.
    """
    n_draws = -(-x.numel() // 4)
    draws = torch.empty(n_draws, dtype=torch.int64).random_(-(2**63), None)
    n_dropped = round(p * 65_536)  # of the 65,536 values of 16 bits
    # A 16-bit part is a signed integer from -32,768: the lowest `n_dropped` of them are dropped.
    values = draws.view(torch.int16)[: x.numel()].view(x.shape)
    keep = torch.ge(values, n_dropped - 32_768, out=torch.empty_like(x))
    return keep.mul_(65_536 / (65_536 - n_dropped))
