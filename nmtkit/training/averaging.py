"""The mean of several checkpoints' weights (section 6.1)."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.errors import UserError
from nmtkit.model.weights import load_tensors
from nmtkit.training.checkpoint import checkpoints, read_progress, verified_weights


def to_average(directory: Path, n_checkpoints: int) -> list[Path]:
    """Return the last `n_checkpoints` scheduled checkpoints in `directory`, oldest first.

    With early stopping, the last is that of the best dev perplexity, and later ones are left out.

    Raises:
        DamagedError: the progress of a checkpoint cannot be read.
    """
    newest_first = checkpoints(directory)[::-1]
    best = read_progress(newest_first[0]).best
    chosen = (
        path
        for path in newest_first
        if (progress := read_progress(path)).scheduled
        and (best is None or progress.step <= best.step)
    )
    return list(islice(chosen, n_checkpoints))[::-1]


def average_weights(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `checkpoints`, summed in float64, returned in float32.

    Raises:
        DamagedError: a checkpoint was altered.
        UserError: the checkpoints are of different models.
    """
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        weights = load_tensors(verified_weights(path))
        if total:
            _check_same_shapes(checkpoints[0], total, path, weights)
        for name, weight in weights.items():
            total[name] = weight.double() + total.get(name, torch.zeros((), dtype=torch.float64))
    return {name: (weight / len(checkpoints)).float() for name, weight in total.items()}


def _check_same_shapes(
    first: Path, expected: dict[str, Tensor], path: Path, found: dict[str, Tensor]
) -> None:
    for name in sorted(expected.keys() | found.keys()):
        here, there = (
            tuple(side[name].shape) if name in side else None for side in (found, expected)
        )
        if here != there:
            raise UserError(
                f"{path} is of another model than {first}: {name} has shape {here}, there {there}; "
                "average checkpoints of one model"
            )
