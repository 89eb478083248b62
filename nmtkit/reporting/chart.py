"""Charts in the units of their drawings, which a template makes of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

MAX_GRID_LINES = 4


@dataclass(frozen=True)
class Chart:
    """Shares by bin: `bars` filled, each of `lines` as steps. A place is counted in bins."""

    key: str  # unique on the page
    title: str
    description: str
    bars: Sequence[tuple[float, str]]  # share, and what is shown when the bar is pointed at
    lines: Sequence[tuple[str, Sequence[float]]]  # class of the style, shares
    ticks: Sequence[tuple[float, str]]  # place on the horizontal axis, text
    marks: Sequence[tuple[float, str]]  # values that are singled out

    WIDTH, HEIGHT = 420, 200
    LEFT, RIGHT, TOP, BOTTOM = 38, 414, 22, 176  # edges of the plot

    @cached_property
    def top(self) -> float:
        """The largest share."""
        shares = [share for share, _ in self.bars]
        return max(shares + [share for _, line in self.lines for share in line])

    def x(self, place: float) -> float:
        """How far right a place is."""
        return round(self.LEFT + place / len(self.bars) * (self.RIGHT - self.LEFT), 1)

    def y(self, share: float) -> float:
        """How far down a share is."""
        return round(self.TOP + (1 - share / self.top) * (self.BOTTOM - self.TOP), 1)

    def rules(self) -> list[float]:
        """Few round shares, each of which gets a line across the plot."""
        steps = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
        step = next((step for step in steps if self.top / step <= MAX_GRID_LINES), steps[-1])
        return [step * i for i in range(1, int(self.top / step) + 1)]


@dataclass(frozen=True)
class LogChart:
    """Lines over a variable, both axes logarithmic."""

    key: str  # unique on the page
    title: str
    lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]  # name, points

    WIDTH, HEIGHT = 420, 300
    LEFT, RIGHT, TOP, BOTTOM = 52, 408, 14, 272  # edges of the plot

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """The lowest and the highest place, the lowest and the highest value."""
        places, values = zip(*(point for _, line in self.lines for point in line), strict=True)
        return min(places), max(places), min(values) / 1.3, max(values) * 1.3

    def x(self, place: float) -> float:
        """How far right a place is."""
        low, high, *_ = self.bounds
        return round(self.LEFT + math.log(place / low, high / low) * (self.RIGHT - self.LEFT), 1)

    def y(self, value: float) -> float:
        """How far down a value is."""
        *_, low, high = self.bounds
        return round(self.BOTTOM - math.log(value / low, high / low) * (self.BOTTOM - self.TOP), 1)

    def rules(self) -> list[float]:
        """Return the powers of ten among the values."""
        *_, low, high = self.bounds
        return [
            10.0**i for i in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        ]

    def ticks(self) -> list[float]:
        """Return the places."""
        return sorted({place for _, line in self.lines for place, _ in line})


@dataclass(frozen=True)
class Curve:
    """A value over the steps of a training; the axis of values begins at 0 or is logarithmic."""

    key: str  # unique on the page
    title: str
    points: Sequence[tuple[int, float]]  # step, value
    end: int  # of the axis of steps
    is_log: bool = False  # all values are positive
    has_dots: bool = False  # each point is shown, and its value when it is pointed at
    over: str = "step"  # what the axis counts

    WIDTH, HEIGHT = 420, 200
    LEFT, RIGHT, TOP, BOTTOM = 52, 414, 14, 176  # edges of the plot

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of the plot."""
        values = [value for _, value in self.points]
        if self.is_log:
            return 0.9 * min(values), 1.1 * max(values)
        return 0.0, 1.05 * max(values) or 1.0

    def x(self, step: int) -> float:
        """How far right a step is."""
        return round(self.LEFT + step / self.end * (self.RIGHT - self.LEFT), 1)

    def y(self, value: float) -> float:
        """How far down a value is."""
        low, high = self.bounds
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return round(self.BOTTOM - (value - low) / (high - low) * (self.BOTTOM - self.TOP), 1)

    def rules(self) -> list[float]:
        """Return a few round values."""
        low, high = self.bounds
        powers = range(math.floor(math.log10(high)) - 2, math.floor(math.log10(high)) + 1)
        if self.is_log:
            first = math.floor(math.log10(low))
            steps = [
                digit * 10.0**power for power in range(first, powers[-1] + 1) for digit in (1, 2, 5)
            ]
            within = [value for value in steps if low <= value <= high]
            return within[:: 1 + len(within) // (MAX_GRID_LINES + 2)]
        steps = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        every = next(step for step in steps if high / step <= MAX_GRID_LINES + 1)
        return [every * i for i in range(int(high / every) + 1)]

    def ticks(self) -> list[int]:
        """Return a few round steps."""
        steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
        every = next(step for step in steps if self.end // step <= MAX_GRID_LINES + 1)
        return list(range(0, self.end + 1, every))
