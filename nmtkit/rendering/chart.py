"""A chart: series over two axes, and the positions of its parts in the drawing, chart.svg.j2."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from rich.cells import cell_len

from nmtkit.rendering.document import templates
from nmtkit.rendering.grid import SUPERSCRIPTS
from nmtkit.utils.text import visible

# Width of a character of the font in chart.css, about: the browser has no chance to measure text.
CHARACTER_WIDTH = 7.6
LEGEND_INDENT = 34.0  # of a name in the legend, behind its line or dot

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """An axis of a chart. By default, it ends at the lowest and the highest value."""

    name: str = ""  # quantity or unit, unless it is plain from the title
    is_log: bool = False  # only for positive values
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] = ()  # values and their names; by default, round values
    second_name: str = ""  # of a second axis below the horizontal one, such as "time"
    second_ticks: Sequence[tuple[float, str]] = ()  # its ticks, at values of this axis
    point_name: "Callable[[float], str] | None" = None  # of a value, at the pointer


@dataclass(frozen=True)
class Series:
    """Points with a name."""

    name: str  # in the legend
    points: Sequence[Point]
    kind: Literal["line", "dots", "line and dots"] = "line"  # a line ends with a dot
    is_noisy: bool = False  # a page offers to smooth it


@dataclass(frozen=True)
class Chart:
    """Series over two axes. Two or more series have a legend."""

    n_colours: ClassVar[int] = 8  # in chart.css
    line: ClassVar[float] = 16.0  # height of a line of text
    radius: ClassVar[float] = 3.5  # of a dot

    key: str  # id on the page, of letters, digits and hyphens
    title: str  # above the drawing, and for screen readers
    series: Sequence[Series]
    x: Axis = Axis()
    y: Axis = Axis()
    marks: Sequence[tuple[float, str]] = ()  # vertical lines, such as a baseline: position and name
    width: float = 420.0  # in pixels, as drawn on a large screen
    plot: float = 160.0  # the height of the plot; axes and legend come on top

    def svg(self, *, is_file: bool = False) -> str:
        """Return the drawing as SVG. Its description has the first and last point of all series.

        Args:
            is_file: Include title and styles, for a file; a page has its own.
        """
        return templates().get_template("chart.svg.j2").render(chart=self, is_file=is_file)

    @cached_property
    def height(self) -> float:
        """Height of the drawing."""
        if not self.legend:
            return 8 + self._axis_end
        # A name of several lines may end below one that begins in a later row.
        baselines = []
        for _, _, baseline, lines in self.legend:
            baselines.append(baseline + (len(lines) - 1) * self.line)
        return 8 + max(baselines)

    def point_text(self, point: Point) -> str:
        """Return a point as text; its value may have a name on the vertical axis."""
        x, value = point
        return f"{short(x)}: {self._value_name(value)}"

    def labelled_points(self, series: Series) -> list[tuple[float, float, str, str]]:
        """Return the points of a series: positions in the drawing, and names of both values."""
        points = []
        for x_value, value in series.points:
            # A step is exact here; the shortened names of ticks would hide digits.
            x_name = f"{x_value:,.0f}" if x_value == round(x_value) else short(x_value)
            if self.x.point_name is not None:
                x_name = self.x.point_name(x_value)
            x = self.horizontal_scale(x_value)
            y = self.vertical_scale(value)
            points.append((x, y, x_name, self._value_name(value)))
        return points

    def _value_name(self, value: float) -> str:
        """Return the name of a value on the vertical axis, or the value."""
        names = dict(self.y.ticks)
        if value in names:
            return names[value]
        text = f"{value:.4g}"
        return short(value) if "e" in text else text  # nobody writes 2.9e-05

    @staticmethod
    def text_width(text: str) -> float:
        """Return the width of a text in pixels, about."""
        return CHARACTER_WIDTH * cell_len(visible(text))

    # Positions

    @cached_property
    def vertical_scale(self) -> "_Scale":
        """The vertical scale."""
        values = []
        for series in self.series:
            for _, value in series.points:
                values.append(value)
        # Names of the axis and of marks stand above the plot.
        top = 8.0 + self.line if self.y.name or self.marks else 8.0
        return _scale(self.y, values, top + self.plot, top, n_ticks=5, is_round=True)

    @cached_property
    def horizontal_scale(self) -> "_Scale":
        """The horizontal scale, to the right of the names of the vertical one."""
        values = []
        for series in self.series:
            for x, _ in series.points:
                values.append(x)
        for x, _ in self.marks:
            values.append(x)
        is_scatter = all(series.kind == "dots" for series in self.series)
        # Without a margin, the lowest dot would lie on the vertical axis. No score is below 0.
        if values and is_scatter and not self.x.is_log:
            margin = 0.04 * (max(values) - min(values)) or 1.0
            low = min(values) - margin
            values += [max(0.0, low) if min(values) >= 0 else low, max(values) + margin]
        left = 8 + max(self.text_width(name) for _, name in self.vertical_scale.ticks)
        # Two axes have their names at their left.
        if self.x.second_ticks:
            left = max(
                left, 14 + self.text_width(self.x.name), 14 + self.text_width(self.x.second_name)
            )
        n_ticks = int(self.width / 60)
        return _scale(self.x, values, left, self.width - 16, n_ticks=n_ticks, is_round=False)

    @cached_property
    def legend(self) -> list[tuple[Series, float, float, list[str]]]:
        """The series of the legend: position and first baseline of their names, in lines."""
        if len(self.series) < 2:
            return []
        legend = []
        x = self.horizontal_scale.start
        y = self._axis_end + self.line
        n_lines = 1  # of the names in the current row
        max_characters = max(10, int((self.width - x - LEGEND_INDENT) / CHARACTER_WIDTH))
        for series in self.series:
            lines = textwrap.wrap(visible(series.name), max_characters) or [""]
            width = LEGEND_INDENT + 14 + max(self.text_width(line) for line in lines)
            # A name that does not fit starts a new row, except in an empty one.
            if x + width > self.width and x > self.horizontal_scale.start:
                x = self.horizontal_scale.start
                y += n_lines * self.line
                n_lines = 1
            legend.append((series, x, y, lines))
            n_lines = max(n_lines, len(lines))
            x += width
        return legend

    @property
    def _axis_end(self) -> float:
        """Lower end of the ticks and of the name of the horizontal axis, or of a second axis."""
        n_lines = 2 if self.x.name or self.x.second_ticks else 1
        return self.vertical_scale.start + n_lines * self.line + 2


# Axes


@dataclass(frozen=True)
class _Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool
    ticks: Sequence[tuple[float, str]]
    name: str

    def __call__(self, value: float) -> float:
        low = self.low
        high = self.high
        if self.is_log:
            low = math.log(low)
            high = math.log(high)
            value = math.log(value)
        share = (value - low) / (high - low)
        # Values outside the limits of the axis are drawn at its ends.
        share = min(max(share, 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def _scale(
    axis: Axis, values: Sequence[float], start: float, end: float, *, n_ticks: int, is_round: bool
) -> _Scale:
    """Return the scale of an axis.

    Args:
        start: Pixel of the lowest value.
        end: Pixel of the highest value.
        n_ticks: Number of ticks, about.
        is_round: End a linear axis at ticks.
    """
    low = min(values, default=1.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    if axis.is_log:
        # A single value needs a range.
        if high <= low:
            high = 10 * low
        margin = (high / low) ** 0.03
        low /= margin
        high *= margin
        ticks = _log_ticks(low, high, n_ticks)
        # Within a short range, round numbers at equal distances are as easy to read.
        if len(ticks) < 2:
            step = _round_step((high - low) / n_ticks)
            ticks = _linear_ticks(low, high, step)
    else:
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            high = low + (abs(low) or 1.0)
        step = _round_step((high - low) / n_ticks)
        if is_round and axis.low is None:
            low = math.floor(low / step) * step
        if is_round and axis.high is None:
            high = math.ceil(high / step) * step
        ticks = _linear_ticks(low, high, step)
    named_ticks = axis.ticks or [(value, short(value)) for value in ticks]
    return _Scale(low, high, start, end, axis.is_log, named_ticks, axis.name)


def _linear_ticks(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of `step` from `low` to `high`."""
    # The tolerance keeps a tick at an end of the axis in spite of rounding.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]


def _round_step(min_step: float) -> float:
    """Return the smallest step of 1, 2 or 5 times a power of ten that is not below `min_step`."""
    power = 10.0 ** math.floor(math.log10(min_step))
    for digit in (1, 2, 5):
        if digit * power >= min_step * (1 - 1e-9):
            return digit * power
    return 10 * power


def _log_ticks(low: float, high: float, max_ticks: int) -> list[float]:
    """Return powers of ten in a range, with 2 and 5, or 3, between them if the range is short.

    Args:
        low: Lower end of the range.
        high: Upper end of the range.
        max_ticks: With more powers than this, some are omitted at equal distances.
    """
    # The densest ticks that are not too many.
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = _multiples_of_powers(low, high, digits)
        if len(ticks) <= max_ticks:
            break
    stride = 1 + len(ticks) // (max_ticks + 1)
    return ticks[::stride]


def _multiples_of_powers(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """Return the numbers of a range that are a digit times a power of ten.

    Args:
        low: Lower end of the range.
        high: Upper end of the range.
        digits: The digits, in ascending order.
    """
    numbers = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for digit in digits:
            number = digit * 10.0**exponent
            if low <= number <= high:
                numbers.append(number)
    return numbers


def short(value: float) -> str:
    """Return a number of an axis, shortened: 0.0005, 20, 5,000, 10k, 2M, 3 × 10¹⁸, 10¹⁹."""
    size = abs(value)
    if size >= 1e12 or 0 < size < 1e-4:
        digits, _, exponent = f"{value:.2e}".partition("e")
        power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
        return power if float(digits) == 1 else f"{float(digits):g} × {power}"
    if size >= 1e9:
        return f"{value / 1e9:.4g}G"
    if size >= 1e6:
        return f"{value / 1e6:.4g}M"
    if size >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if size >= 1e3 else f"{value:.4g}"


# Legends


def short_labels(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return a short name for every group of labels: the words that distinguish it from others.

    The first word names a group that has no such words, as that of a recipe without overrides.

    Args:
        groups: The labels of runs, such as "demo max_steps=60 beam_size=1". Runs of a group share
            a training; their curve is named by the words that all of them have.
    """
    group_words = []
    for labels in groups:
        label_words = [label.split(" ") for label in labels]
        group_words.append(_common_words(label_words))
    if len(group_words) == 1:
        return [" ".join(group_words[0])]

    names = []
    everywhere = _common_words(group_words)
    for words in group_words:
        differing = [word for word in words if word not in everywhere]
        names.append(" ".join(differing or words[:1]))
    # Names that are too short to distinguish the groups are replaced by all labels.
    if len(set(names)) < len(names):
        return [" = ".join(labels) for labels in groups]
    return names


def _common_words(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return the words of the first text that all others have, in its order."""
    common = list(texts[0])
    for words in texts[1:]:
        common = [word for word in common if word in words]
    return common
