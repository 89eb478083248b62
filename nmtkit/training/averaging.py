"""The mean of several models' weights (section 6.1)."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.store.tensors import load_tensors
from nmtkit.utils.errors import UserError

LEAST_COSINE = 0.1  # of the weights of two models; about 0 if they were drawn independently


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `files`, summed in float64, returned in float32."""
    total: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_tensors(file).items():
            total[name] = weight.double() + total.get(name, torch.zeros((), dtype=torch.float64))
    return {name: (weight / len(files)).float() for name, weight in total.items()}


def check_related(files: Sequence[Path]) -> None:
    """Raise a UserError unless the weights in `files` have grown from the same initial ones."""
    first = load_tensors(files[0])
    for file in files[1:]:
        sums = torch.zeros(3, dtype=torch.float64)
        for name, weight in load_tensors(file).items():
            if weight.dim() == 2:  # gains and biases begin as the same in every model
                a, b = weight.double().flatten(), first[name].double().flatten()
                sums += torch.stack([a @ b, a @ a, b @ b])
        product, square, other_square = sums.tolist()
        cosine = product / math.sqrt(square * other_square)
        if not cosine >= LEAST_COSINE:
            raise UserError(
                f"{file.parent} was trained from other initial weights than {files[0].parent} "
                f"(another seed; the cosine of their weights is {cosine:.3f}), so that their mean "
                "is noise; average checkpoints of one training or fine-tunings of one model, or "
                "give both bundles to `nmtkit translate` as an ensemble"
            )
