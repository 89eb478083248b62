"""Table 1: layers of the right form, and the table of their times."""

import json

import pytest
import torch
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import bench_layers as command
from nmtkit.cli.bench import LAYER_TYPES, NEIGHBOURHOOD, layer_of

N = 2 * NEIGHBOURHOOD
# Positions that the last one sees in one layer.
SEEN = {
    "self-attention": range(N),
    "recurrent (LSTM)": range(N),
    "convolutional": range(N - 2, N),
    "self-attention, restricted": range(N - 1 - NEIGHBOURHOOD // 2, N),
}


@pytest.mark.parametrize("layer", LAYER_TYPES)
def test_a_layer_sees_what_its_row_of_table_1_says(layer: str) -> None:
    x = torch.randn(N, 128, requires_grad=True)
    y = layer_of(layer, x)[0](x)
    assert y.shape == x.shape
    (gradient,) = torch.autograd.grad(y[-1].sum(), x)
    seen = gradient.abs().sum(-1) > 0
    assert seen.nonzero().flatten().tolist() == list(SEEN[layer])


def test_times_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SIZES", {"cpu": ((8, 16), (64, 128))})
    arguments = ["bench", "layers", "--seconds", "0.1", "--device", "cpu", "--json"]
    ended = CliRunner().invoke(cli.app, arguments)
    assert ended.exit_code == 0, ended.exception
    told = json.loads(ended.stdout)
    assert [each["layer"] for each in told] == list(LAYER_TYPES)
    for each in told:
        assert [*each["seconds"]] == ["64", "128"]
        assert all(taken > 0 for of_d in each["seconds"].values() for taken in of_d.values())
