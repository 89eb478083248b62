"""Dropout of residuals and embeddings (section 5.4), and of attention weights (section 6.3)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Dropout(nn.Module):
    """During training, zero each element with probability `p` and scale the rest by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to `x`, of any shape."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * random_scale(x, self.p)


def random_scale(x: Tensor, p: float) -> Tensor:
    """Return a tensor like `x` of zeros with probability `p`, and 1 / (1 - p) elsewhere.

    On a CPU, `F.dropout` draws one random number per element in a single thread, 20 ns each. Here
    one 64-bit number decides four elements, so `p` is rounded to a multiple of 1 / 65,536.
    """
    if x.device.type != "cpu":
        return F.dropout(torch.ones_like(x), p)
    n_draws = -(-x.numel() // 4)
    draws = torch.empty(n_draws, dtype=torch.int64).random_(-(2**63), None)
    n_dropped = round(p * 65_536)  # of the 65,536 values of 16 bits
    values = draws.view(torch.int16)[: x.numel()].view(x.shape)
    keep = torch.ge(values, n_dropped - 32_768, out=torch.empty_like(x))
    return keep.mul_(65_536 / (65_536 - n_dropped))
