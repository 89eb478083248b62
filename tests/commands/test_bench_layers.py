"""Table 1: what is counted, against other counts."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nmtkit.commands import bench_layers as bench
from nmtkit.commands.layer_types import LAYER_TYPES, LayerType, Sizes
from nmtkit.files import read_record
from nmtkit.machine import Machine
from nmtkit.reporting.exhibit import read_exhibit, write_exhibit
from nmtkit.reporting.layers import LayerTable, costs_grid, layers_exhibit, steps_grid, write_plot
from nmtkit.reporting.tables import print_layers

TYPES = {kind.name: kind for kind in LAYER_TYPES}
SIZES = Sizes(n=12, d=128, k=3, r=5)
types = pytest.mark.parametrize("kind", LAYER_TYPES, ids=lambda kind: kind.name)


@types
def test_flops_are_those_that_are_counted_while_it_runs(kind: LayerType) -> None:
    x = torch.randn(1, SIZES.n, SIZES.d)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if kind.name == "recurrent (LSTM)":
            # torch's own layer is one operation, which is not counted; a loop of cells is.
            assert kind.loop is not None
            kind.loop(SIZES)(x[0])
        elif kind.name == "self-attention, restricted":
            # Only what a query sees counts, and short sentences are computed whole.
            kind.layer(SIZES._replace(r=2 * SIZES.n))(x)
            assert kind.flops(SIZES) * SIZES.n == counter.get_total_flops() * SIZES.r
            return
        else:
            kind.layer(SIZES)(x)
    assert counter.get_total_flops() == kind.flops(SIZES)


@types
def test_the_step_and_the_loop_are_the_layer(kind: LayerType) -> None:
    """With the same weights: those of one are copied to the other."""
    x = torch.randn(SIZES.n, SIZES.d)
    if kind.name != "recurrent (LSTM)":
        # One layer reaches as far as its step does.
        step, layer = kind.step(SIZES), kind.layer(SIZES)
        reach = []
        for compute in (lambda each: step(each, 1), lambda each: layer(each[None])[0]):
            inputs = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(compute(inputs)[-1].sum(), inputs)
            reach.append(gradient.abs().sum(1) > 0)
        assert torch.equal(*reach)
        return
    layer = kind.layer(SIZES)
    assert isinstance(layer.lstm, nn.LSTM)
    cell = nn.LSTMCell(SIZES.d, SIZES.d)
    for name, parameter in cell.named_parameters():
        parameter.data.copy_(getattr(layer.lstm, f"{name}_l0"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn, "LSTMCell", lambda *_, **__: cell)
        assert kind.loop is not None
        torch.testing.assert_close(kind.loop(SIZES)(x), layer(x[None])[0])


@pytest.mark.parametrize("n", [7, 16, 33])
def test_paths_are_as_long_as_the_arithmetic_of_reach_says(n: int) -> None:
    sizes = bench.SHORT_SIZES._replace(n=n)
    found = {kind.name: bench.path_length(kind, sizes) for kind in LAYER_TYPES}
    contiguous = math.ceil((n - 1) / (sizes.k - 1))
    assert found == {
        "self-attention": 1,
        "self-attention, projected": 1,
        "recurrent (LSTM)": n - 1,
        "convolutional": contiguous,
        "convolutional, dilated": next(m for m in range(9) if sizes.k**m >= n),
        "convolutional, separable": contiguous,
        "self-attention, restricted": math.ceil((n - 1) / (sizes.r // 2)),
    }


@types
def test_only_the_recurrent_layer_waits_longer_for_longer_sentences(kind: LayerType) -> None:
    short, long = (bench.chain_length(kind, bench.SHORT_SIZES._replace(n=n)) for n in (10, 30))
    assert (short < 10) == (kind.sequential == "O(1)")
    assert (short == long) == (kind.sequential == "O(1)")
    if kind.sequential == "O(n)":
        assert long - short == pytest.approx(2 * short, abs=10)


def test_a_power_is_fitted() -> None:
    assert bench.fitted_power([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx((2.0, 1.0))
    exponent, r_squared = bench.fitted_power([1, 2, 4, 8], [1.0, 3.0, 3.0, 8.0])
    assert 0.8 < exponent < 1.1
    assert 0.8 < r_squared < 0.95


def test_table_is_printed_and_read_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps = {"n": (8, 16), "d": (64, 128), "k": (3, 5), "r": (3, 4)}
    monkeypatch.setitem(bench.SIZES, "cpu", Sizes(16, 64, 3, 4))
    monkeypatch.setitem(bench.SWEEPS, "cpu", sweeps)
    table = bench.bench_layers(Machine(tmp_path, device="cpu"), 0.0)
    assert len(table.times) == 7 * 3 + 4  # one variable at a time; the sizes of the table are once
    print_layers(table, as_json=True)
    path = tmp_path / "layers.json"
    path.write_text(capsys.readouterr().out, encoding="utf-8", newline="\n")
    assert read_record(path, LayerTable) == table
    print_layers(table, as_json=False)
    out = capsys.readouterr().out
    assert "recurrent (LSTM)" in out
    assert "O(log_k n)" in out
    for row in table.rows:
        assert [growth.over for growth in row.growths] == list(TYPES[row.layer].grows_with)
        (n, d, *_) = row.growths
        if row.layer == "self-attention":
            assert (n.of_flops, d.of_flops) == pytest.approx((2.0, 1.0))
    write_plot(table, tmp_path / "layers.svg")
    lines = ElementTree.parse(tmp_path / "layers.svg").getroot().iter()
    circles = [each for each in lines if each.tag.endswith("circle")]
    assert len(circles) == 7 * (2 + 2) + 2 * 7  # and the legends
    exhibit = layers_exhibit(table)
    write_exhibit(tmp_path, "table-1", exhibit)
    assert read_exhibit(tmp_path, "table-1") == exhibit
    assert [panel.grid() for panel in exhibit.panels] == [costs_grid(table), steps_grid(table)]
