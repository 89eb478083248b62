"""The average of checkpoints, compared with a mean that is computed by hand."""

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn

from nmtkit.model.weights import WEIGHTS
from nmtkit.stages.average import average_weights
from nmtkit.training.checkpoint import Progress, Snapshot


def checkpoint(folder: Path, step: int, fill: float | None = None) -> Path:
    torch.manual_seed(step)
    model = nn.Linear(3, 5)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    if fill is not None:
        model.weight.data.fill_(fill)
    progress = Progress(step=step, epoch=0, index=step, tgt_tokens=step)
    return Snapshot.of(model, optimizer, progress).publish(folder)


def test_average_equals_mean_by_hand(tmp_path: Path) -> None:
    paths = [checkpoint(tmp_path, step) for step in (4, 7, 9)]
    loaded = [load_file(path / WEIGHTS) for path in paths]
    averaged = average_weights([path / WEIGHTS for path in paths])
    assert averaged.keys() == loaded[0].keys() == {"weight", "bias"}
    for name, weight in averaged.items():
        mean = np.mean([weights[name].astype(np.float64) for weights in loaded], axis=0)
        assert weight.dtype == torch.float32
        np.testing.assert_array_equal(weight.numpy(), mean.astype(np.float32))


def test_average_in_double_precision(tmp_path: Path) -> None:
    fills = (2.0**30, 1.0, -(2.0**30))  # in single precision the 1 is lost
    paths = [checkpoint(tmp_path, step, fill) for step, fill in enumerate(fills, start=1)]
    weight = average_weights([path / WEIGHTS for path in paths])["weight"]
    assert torch.equal(weight, torch.full((5, 3), 1 / 3))
