"""The mean of the weights of several models (section 6.1)."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.store.tensors import load_tensors
from nmtkit.utils.errors import UserError

# Minimum cosine of the weights of two models. It is about 0 for independent initial weights.
MIN_COSINE = 0.1


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `files`, summed in float64, returned in float32."""
    # One file after another, so that only one of them is in memory at a time.
    sums: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_tensors(file).items():
            if name not in sums:
                sums[name] = torch.zeros_like(weight, dtype=torch.float64)
            sums[name] += weight
    return {name: (weight / len(files)).float() for name, weight in sums.items()}


def check_related(files: Sequence[Path]) -> None:
    """Check that the weights in `files` were trained from the same initial weights.

    Raises:
        UserError: They were not, so that their mean would be noise.
    """
    # Two models in memory at a time are enough: all are compared with the first.
    first = load_tensors(files[0])
    for file in files[1:]:
        product = square = other_square = 0.0
        for name, weight in load_tensors(file).items():
            if weight.dim() == 1:
                continue  # gains and biases have the same initial values in every model
            a = weight.double().flatten()
            b = first[name].double().flatten()
            product += (a @ b).item()
            square += (a @ a).item()
            other_square += (b @ b).item()
        cosine = product / math.sqrt(square * other_square)
        # The negation also refuses NaN, of weights that are not finite.
        if not cosine >= MIN_COSINE:
            raise UserError(
                f"{file.parent} was trained from other initial weights than {files[0].parent} "
                f"(another seed; the cosine of their weights is {cosine:.3f}), so their mean is "
                "meaningless; average checkpoints of one training or fine-tunings of one model, "
                "or pass both bundles to `nmtkit translate` as an ensemble"
            )
