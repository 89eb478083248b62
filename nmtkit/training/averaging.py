"""The mean of several checkpoints' weights (section 6.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.model.shapes import WEIGHTS
from nmtkit.model.weights import check_shapes, load_tensors
from nmtkit.training.checkpoint import verify_checkpoint


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `checkpoints`, summed in float64, returned in float32.

    Raises:
        DamagedError: a checkpoint was altered.
        UserError: the checkpoints are of different models.
    """
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        verify_checkpoint(path)
        weights = load_tensors(path / WEIGHTS)
        check_shapes(path / WEIGHTS, weights, total or weights)
        for name, weight in weights.items():
            total[name] = weight.double() + total.get(name, torch.zeros((), dtype=torch.float64))
    return {name: (weight / len(checkpoints)).float() for name, weight in total.items()}
