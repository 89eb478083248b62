"""A histogram in the units of its drawing, which a template makes of it."""

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
