"""nmtkit bench layers: the layers of Table 1, timed on this machine."""

import math
from typing import Any

from nmtkit import progress
from nmtkit.cli.options import Device, Seconds, Svg, command
from nmtkit.files import write_whole
from nmtkit.machine import RUNS, Machine
from nmtkit.reporting.chart import Axis, Chart, Series, svg_file
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show

# Large enough that arithmetic takes most of the time, and small enough for a minute. One of n and d
# changes at a time, and the other has its value at BASE.
SIZES: dict[str, dict[str, Any]] = {
    "cpu": {"n": (256, 512, 1_024, 2_048), "d": (128, 256, 512, 1_024), "k": 3, "r": 64},
    "cuda": {"n": (2_048, 4_096, 8_192, 16_384), "d": (256, 512, 1_024, 2_048), "k": 3, "r": 512},
}
BASE = 2
SENTENCES = {"cpu": 1, "cuda": 8}
NAMES = ("layer", "complexity", "sequential", "path")  # the columns of Table 1


@command("nmtkit bench layers --svg layers.svg")
def bench_layers(
    form: Form, seconds: Seconds = 0.5, svg: Svg = None, device: Device = "auto"
) -> None:
    """Measure Table 1: self-attention, recurrence and convolution."""
    from nmtkit.cli.layer_types import LAYER_TYPES, Sizes, seconds_of

    on_device = Machine(RUNS, device=device).torch_device()
    of_device, n_sentences = SIZES[on_device.type], SENTENCES[on_device.type]
    base = Sizes(of_device["n"][BASE], of_device["d"][BASE], of_device["k"], of_device["r"])
    rows: list[dict[str, Any]] = []
    for kind in LAYER_TYPES:
        progress.say(f"bench: {kind.layer}")
        row = {name: getattr(kind, name) for name in NAMES}
        for over in "nd":
            sizes = [base._replace(**{over: size}) for size in of_device[over]]
            row[f"seconds_by_{over}"] = {
                getattr(each, over): seconds_of(kind, each, n_sentences, on_device, seconds)
                for each in sizes
            }
        rows.append(row)
    on = {"device": device_name(on_device), "sentences": n_sentences, **base._asdict()}
    note = "n^, d^: the power with which time grows over n and over d"
    show(form, {**on, "rows": rows}, [_grid(on, rows), note])
    if svg is not None:
        write_whole(svg, svg_file(*(_chart(on, rows, over) for over in "nd")))
        progress.say(f"bench: wrote {svg}")


def _grid(on: dict[str, Any], rows: list[dict[str, Any]]) -> Grid:
    title = "Table 1 on {device}: ms forward and backward, d = {d:,}, k = {k}, r = {r:,}"
    cells = [
        (
            *(row[name] for name in NAMES),
            *(f"{1e3 * taken:,.1f}" for taken in row["seconds_by_n"].values()),
            *(f"{_power(row[f'seconds_by_{over}']):.2f}" for over in "nd"),
        )
        for row in rows
    ]
    sizes = [f"n = {n:,}" for n in rows[0]["seconds_by_n"]]
    return Grid.of(title.format(**on), (*NAMES, *sizes, "n^", "d^"), cells, len(NAMES))


def _power(seconds: dict[int, float]) -> float:
    """Fit time = a size^b by least squares to the logarithms, and return b."""
    x, y = [math.log(size) for size in seconds], [math.log(each) for each in seconds.values()]
    mean = sum(x) / len(x)
    return sum((a - mean) * b for a, b in zip(x, y, strict=True)) / sum((a - mean) ** 2 for a in x)


def _chart(on: dict[str, Any], rows: list[dict[str, Any]], over: str) -> Chart:
    other = "d" if over == "n" else "n"
    lines = [
        Series(
            row["layer"],
            [(size, 1e3 * taken) for size, taken in row[f"seconds_by_{over}"].items()],
            "line and dots",
        )
        for row in rows
    ]
    ticks = [(size, f"{size:,}") for size in rows[0][f"seconds_by_{over}"]]
    x, y = Axis(over, is_log=True, ticks=ticks), Axis(is_log=True)
    return Chart(over, f"Time of a layer in ms by {over}, {other} = {on[other]:,}", lines, x, y)
