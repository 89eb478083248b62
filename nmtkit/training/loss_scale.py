"""Loss scaling, which keeps small gradients of float16 from becoming zero."""

import torch
from torch import Tensor

INITIAL_FACTOR = 2.0**16
GROWTH_STEPS = 2_000  # finite steps in a row after which the factor is doubled


class LossScale:
    """A factor for the loss that is as large as float16 allows (Micikevicius et al. 2018).

    The smallest positive number of float16 is 6e-8. The loss is multiplied by the factor before the
    backward pass, and Adam divides the gradient by it. If the gradient overflows, the step is
    skipped and the factor halved. With float32 and bfloat16, whose exponents are large enough, the
    factor stays 1.

    All of it is computed on the device, so that no step waits for it.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """Start with the initial factor.

        Args:
            dtype: Data type of activations.
            device: Where the gradients are.
        """
        self.is_used = dtype == torch.float16
        factor = INITIAL_FACTOR if self.is_used else 1.0
        self.factor = torch.full((), factor, dtype=torch.float32, device=device)
        self.n_finite = torch.zeros((), dtype=torch.int64, device=device)  # steps in a row

    def restore(self, factor: float, n_finite: int) -> None:
        """Continue from a checkpoint, unless its last step had no loss scale."""
        # Steps in float32 and bfloat16 leave the factor at 1, and count no finite steps.
        was_used = factor > 1.0 or n_finite > 0
        if self.is_used and was_used:
            self.factor.fill_(factor)
            self.n_finite.fill_(n_finite)

    def is_overflow(self, is_finite: Tensor) -> Tensor:
        """Return whether a smaller factor may help a gradient that is not finite: a bool scalar."""
        return ~is_finite & (self.factor > 1.0)

    def update(self, is_finite: Tensor) -> None:
        """Adapt the factor after a step.

        Args:
            is_finite: Whether the gradient is finite, a bool scalar on the device.
        """
        if not self.is_used:
            return
        # `torch.where` instead of `if`, which would wait for the device.
        n_finite = torch.where(is_finite, self.n_finite + 1, 0)
        is_grown = n_finite == GROWTH_STEPS
        smaller = (self.factor / 2).clamp(min=1.0)
        larger = torch.where(is_grown, self.factor * 2, self.factor)
        self.factor.copy_(torch.where(is_finite, larger, smaller))
        self.n_finite.copy_(torch.where(is_grown, 0, n_finite))
