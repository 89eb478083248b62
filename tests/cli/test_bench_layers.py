"""Table 1: layers of the right form, and the table of their times."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import bench_layers as command
from nmtkit.cli.layer_types import LAYER_TYPES, LayerType, Sizes, seconds_of

SIZES = Sizes(n=12, d=128, k=3, r=5)
N_AND_D = {"cpu": {"n": (8, 16, 24, 32), "d": (64, 128, 192, 256), "k": 3, "r": 4}}
# Positions that the last one sees in one layer.
SEEN = {
    "self-attention": range(12),
    "recurrent (LSTM)": range(12),
    "convolutional": (9, 10, 11),
    "self-attention, restricted": (9, 10, 11),
}


@pytest.mark.parametrize("kind", LAYER_TYPES, ids=lambda kind: kind.layer)
def test_a_layer_sees_what_its_row_of_table_1_says(kind: LayerType) -> None:
    x = torch.randn(2, SIZES.n, SIZES.d, requires_grad=True)
    y = kind.build(SIZES)(x)
    assert y.shape == x.shape
    (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
    seen = gradient.abs().sum(-1) > 0
    assert tuple(seen[0].nonzero().flatten().tolist()) == tuple(SEEN[kind.layer])
    assert not seen[1].any()
    assert seconds_of(kind, SIZES, 1, torch.device("cpu"), 0.0) > 0


def test_power_of_growth_is_fitted() -> None:
    assert command._power({1: 3.0, 2: 12.0, 4: 48.0}) == pytest.approx(2.0)


def test_times_are_shown_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "SIZES", N_AND_D)
    svg = tmp_path / "layers.svg"
    arguments = ["bench", "layers", "--seconds", "0.1", "--device", "cpu", "--svg", str(svg)]
    ended = CliRunner().invoke(cli.app, [*arguments, "--json"])
    assert ended.exit_code == 0, ended.exception
    told = json.loads(ended.stdout)
    assert (told["n"], told["d"], told["k"], told["r"]) == (24, 192, 3, 4)
    assert [row["layer"] for row in told["rows"]] == [kind.layer for kind in LAYER_TYPES]
    for row in told["rows"]:
        assert [*row["seconds_by_n"]] == ["8", "16", "24", "32"]
        assert all(taken > 0 for taken in row["seconds_by_d"].values())
    circles = [each for each in ElementTree.parse(svg).iter() if each.tag.endswith("circle")]
    assert len(circles) == 2 * 4 * (4 + 1)  # the legend has one of each
