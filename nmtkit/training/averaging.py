"""The mean of several checkpoints' weights (section 6.1)."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from nmtkit import artifacts
from nmtkit.training.checkpoint import MODEL


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `checkpoints`, summed in float64, returned in float32.

    Raises:
        UserError: a checkpoint was altered.
    """
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        artifacts.verify(artifacts.open_directory(path))
        weights = load_file(path / MODEL)
        assert not total or total.keys() == weights.keys(), f"{path} has other parameters"
        for name, weight in weights.items():
            total[name] = weight.double() + total.get(name, torch.zeros((), dtype=torch.float64))
    return {name: (weight / len(checkpoints)).float() for name, weight in total.items()}
