"""Table 1, measured: the same on a terminal, in a plot and on a page."""

from pathlib import Path

from nmtkit.files import Record
from nmtkit.reporting.chart import Axis, Chart, Series, svg_file
from nmtkit.reporting.exhibit import Drawing, Exhibit, Panel
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.page import replace_page
from nmtkit.rooms import hashes
from nmtkit.store import versions

POOR_FIT = 0.95  # R²


class LayerTime(Record):
    """How long a layer takes forward and backward."""

    layer: str
    n: int  # positions of a sentence
    d: int  # width
    k: int  # kernel width
    r: int  # neighbourhood
    seconds: float
    flops: float  # of its matrix products, forward and backward


class Growth(Record):
    """How the time of a layer grows with a variable: a power, fitted to the logarithms."""

    over: str  # n, d, k or r
    exponent: float
    of_flops: float  # the same of its FLOPs, which Table 1 speaks of
    r_squared: float  # 1: the logarithms lie on a line


class LayerRow(Record):
    """A row of Table 1."""

    layer: str
    complexity: str
    sequential: str
    path: str
    seconds: float  # at the sizes of the table
    flops: float
    growths: list[Growth]
    chains: list[int]  # operations that wait for one another, in sentences of the short lengths
    paths: list[int]  # steps until the first position influences the last, in the same


class LayerTable(Record):
    """Table 1, measured on a machine."""

    device: str
    threads: int
    dtype: str
    n_sentences: int  # that are computed together
    n: int
    d: int
    k: int
    r: int
    short_lengths: list[int]  # of the sentences whose operations and paths are counted
    short_k: int
    short_r: int
    rows: list[LayerRow]
    times: list[LayerTime]


def costs_grid(table: LayerTable) -> Grid:
    """Return the time of each layer, and how it grows."""
    on = table.device if table.device != "CPU" else f"CPU, {table.threads} threads"
    sizes = f"n = {table.n:,}, d = {table.d:,}, k = {table.k}, r = {table.r:,}"
    sentences = f"{table.n_sentences} sentence{'s' if table.n_sentences > 1 else ''}"
    title = f"Table 1 on {on}, {table.dtype}: {sentences} of {sizes}, forward and backward"
    powers = [f"{variable}^" for variable in "ndkr"]
    columns = ("layer", "complexity", "ms", "GFLOP", "GFLOP/s", *powers)
    rows = []
    for row in table.rows:
        growths = {growth.over: growth for growth in row.growths}
        figures = 1e3 * row.seconds, row.flops / 1e9, row.flops / row.seconds / 1e9
        cells = [f"{figure:,.3g}" if figure < 100 else f"{figure:,.0f}" for figure in figures]
        cells += [_power(growths.get(variable)) for variable in "ndkr"]
        rows.append((row.layer, row.complexity, *cells))
    return Grid(title, columns, 2, [[row] for row in rows])


def steps_grid(table: LayerTable) -> Grid:
    """Return the sequential operations and the path lengths that were counted."""
    lengths = [f"n = {n}" for n in table.short_lengths]
    columns = ("layer", "sequential operations", *lengths, "maximum path length", *lengths)
    title = f"Operations and paths, k = {table.short_k}, r = {table.short_r}"
    rows = [
        (row.layer, row.sequential, *map(str, row.chains), row.path, *map(str, row.paths))
        for row in table.rows
    ]
    return Grid(title, columns, 2, [[row] for row in rows])


# What must be known to read the tables.
LAYERS_NOTES = [
    "n^, d^, k^, r^: the power with which time grows, fitted to the logarithms of 3 or 4 "
    "sizes; in brackets, that with which its FLOPs grow",
    f"*: the fit is poor, R² below {POOR_FIT}; times vary, or arithmetic is not most of them",
    "sequential operations: the longest chain of plain operations that wait for one another; "
    "the recurrent layer is a loop of cells there, although torch's own is one call",
    "maximum path length: layers until the first position influences the last; cells, of the "
    "recurrent layer",
    "self-attention is equation 1 with given queries, keys and values, as Table 1 counts it",
]


def plot_layers(table: LayerTable) -> str:
    """Return SVG: time over n and over d, both logarithmic."""
    charts = []
    for variable, at in (("n", f"d = {table.d:,}"), ("d", f"n = {table.n:,}")):
        series = [
            Series(row.layer, _series(table, row.layer, variable), "line and dots")
            for row in table.rows
        ]
        places = sorted({place for each in series for place, _ in each.points})
        ticks = [(place, f"{place:,.0f}") for place in places]
        title = f"Seconds by {variable}, {at}"
        axes = Axis(variable, is_log=True, ticks=ticks), Axis("seconds", is_log=True)
        charts.append(Chart(variable, title, series, *axes, plot=260))
    return svg_file(*charts)


def layers_exhibit(table: LayerTable) -> Exhibit:
    """Return Table 1 for the report."""
    return Exhibit(
        command="nmtkit bench layers",
        made_by={**versions(), **hashes(["model/", "commands/layer_types.py"])},
        notes=LAYERS_NOTES,
        panels=[Panel.of(grid) for grid in (costs_grid(table), steps_grid(table))],
        drawings=[Drawing(title="Time of a layer over n and over d", svg=plot_layers(table))],
    )


def write_plot(table: LayerTable, path: Path) -> None:
    """Write the plot, whole or not at all."""
    replace_page(path, plot_layers(table))


def _series(table: LayerTable, layer: str, variable: str) -> list[tuple[float, float]]:
    others = [name for name in "ndkr" if name != variable]
    return sorted(
        (getattr(time, variable), time.seconds)
        for time in table.times
        if time.layer == layer and all(getattr(time, x) == getattr(table, x) for x in others)
    )


def _power(growth: Growth | None) -> str:
    if growth is None:
        return ""
    mark = "*" if growth.r_squared < POOR_FIT else ""
    return f"{growth.exponent:.2f}{mark} ({growth.of_flops:.2f})"
