"""A chart: series over two axes, and where all of it is in the drawing, chart.svg.j2."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from rich.cells import cell_len

from nmtkit.reporting.document import TEMPLATES
from nmtkit.utils.text import visible

CHARACTER = 7.6  # about the width of one
TOP = 8.0  # where the plot begins

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One of the two axes of a chart; where it ends is taken from the values by default."""

    name: str = ""  # of the horizontal axis, where the title does not say it
    is_log: bool = False  # all values are positive then
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] = ()  # values and their names; by default, round values


@dataclass(frozen=True)
class Series:
    name: str  # in the legend
    points: Sequence[Point]
    kind: Literal["line", "dots", "line and dots"] = "line"  # a line has a dot at its end


@dataclass(frozen=True)
class Chart:
    """Series over two axes, as a template prints it; a legend names two or more series."""

    n_colours: ClassVar[int] = 8  # in chart.css
    line: ClassVar[float] = 16.0  # the height of a line of text
    radius: ClassVar[float] = 3.5  # of a dot

    key: str  # its id on the page, of letters, digits and hyphens
    title: str  # a page writes it above, and screen readers say it
    series: Sequence[Series]
    x: Axis = Axis()
    y: Axis = Axis()
    width: float = 420.0  # in pixels, as drawn on a large screen
    plot: float = 160.0  # the height of the plot; axes and legend come on top

    def svg(self, *, is_file: bool = False) -> str:
        """Return the drawing, for a page with chart.css or as a file with a style of its own.

        Screen readers hear the ends of each series.
        """
        return TEMPLATES.get_template("chart.svg.j2").render(chart=self, is_file=is_file)

    @cached_property
    def height(self) -> float:
        return 8 + (self.legend[-1][2] if self.legend else self._axis_end)

    def named(self, point: Point) -> str:
        value = dict(self.y.ticks).get(point[1], f"{point[1]:.4g}")
        return f"{short(point[0])}: {value}"

    @staticmethod
    def width_of(text: str) -> float:
        return CHARACTER * cell_len(visible(text))

    # Places

    @cached_property
    def up(self) -> "_Scale":
        values = [value for each in self.series for _, value in each.points]
        return _scale(self.y, values, TOP + self.plot, TOP, n_ticks=5, is_round=True)

    @cached_property
    def across(self) -> "_Scale":
        left = 8 + max(self.width_of(name) for _, name in self.up.ticks)
        places = [place for each in self.series for place, _ in each.points]
        n_ticks = int(self.width / 60)
        return _scale(self.x, places, left, self.width - 16, n_ticks=n_ticks, is_round=False)

    @cached_property
    def legend(self) -> list[tuple[Series, float, float]]:
        """Each series that the legend names, and where its line stands."""
        x, y, found = self.across.start, self._axis_end + self.line, []
        for each in self.series if len(self.series) > 1 else []:
            width = 48 + self.width_of(each.name)
            if x + width > self.width and x > self.across.start:
                x, y = self.across.start, y + self.line
            found.append((each, x, y))
            x += width
        return found

    @property
    def _axis_end(self) -> float:
        return self.up.start + self.line * (1 + bool(self.x.name)) + 2


# Axes


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float
    is_log: bool
    ticks: Sequence[tuple[float, str]]

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def _scale(
    axis: Axis, values: Sequence[float], start: float, end: float, *, n_ticks: int, is_round: bool
) -> _Scale:
    """Return a scale with about `n_ticks` values; if `is_round` and linear, it ends at such."""
    low = min(values, default=1.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    if axis.is_log:
        high = high if high > low else 10 * low
        margin = (high / low) ** 0.03
        low, high = low / margin, high * margin
        ticks = _powers(low, high, n_ticks)
    else:
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            high = low + (abs(low) or 1.0)
        least = (high - low) / n_ticks
        power = 10.0 ** math.floor(math.log10(least))
        every = next(of * power for of in (1, 2, 5, 10) if of * power >= least * (1 - 1e-9))
        if is_round:
            low = math.floor(low / every) * every if axis.low is None else low
            high = math.ceil(high / every) * every if axis.high is None else high
        first, last = math.ceil(low / every - 1e-9), math.floor(high / every + 1e-9)
        ticks = [every * i for i in range(first, last + 1)]
    named = axis.ticks or [(value, short(value)) for value in ticks]
    return _Scale(low, high, start, end, axis.is_log, named)


def _powers(low: float, high: float, most: int) -> list[float]:
    """Return the powers of ten from `low` to `high`, with 2 and 5 between them if they are few."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if high < 50 * low else (1,)
    found = [digit * 10.0**power for power in exponents for digit in digits]
    within = [value for value in found if low <= value <= high]
    return within[:: 1 + len(within) // (most + 1)] or [low, high]


def short(value: float) -> str:
    """Return a number of an axis, short: 0.0005, 20, 5,000, 10k, 2M, 3e18."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-5:
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{float(digits):g}e{int(power)}"
    for unit, name, least in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e4)):
        if size >= least:
            return f"{value / unit:.4g}{name}"
    return f"{value:,.0f}" if size >= 1e3 else f"{value:.4g}"
