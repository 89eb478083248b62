"""Training cost against BLEU, as Table 2 invites to compare them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Point:
    """A system: its cost in FLOPs, its score, and whether it is one of ours."""

    name: str
    flops: float
    score: float
    is_ours: bool


@dataclass(frozen=True)
class Scatter:
    """Systems by cost, on a logarithmic axis, and score."""

    key: str  # unique on the page
    title: str
    points: Sequence[Point]

    WIDTH, HEIGHT = 420, 240
    LEFT, RIGHT, TOP, BOTTOM = 38, 414, 14, 204  # edges of the plot

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """The powers of ten around all costs, and round scores around all scores."""
        costs = [math.log10(point.flops) for point in self.points]
        scores = [point.score for point in self.points]
        return (
            math.floor(min(costs)),
            max(math.ceil(max(costs)), math.floor(min(costs)) + 1),
            math.floor(min(scores)) - 1,
            math.ceil(max(scores)) + 1,
        )

    def x(self, flops: float) -> float:
        """How far right a cost is."""
        low, high, *_ = self.bounds
        share = (math.log10(flops) - low) / (high - low)
        return round(self.LEFT + share * (self.RIGHT - self.LEFT), 1)

    def y(self, score: float) -> float:
        """How far down a score is."""
        *_, low, high = self.bounds
        return round(self.BOTTOM - (score - low) / (high - low) * (self.BOTTOM - self.TOP), 1)

    def rules(self) -> list[int]:
        """Return a few round scores."""
        *_, low, high = map(int, self.bounds)
        every = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 5)
        return [score for score in range(low, high + 1) if score % every == 0]

    def ticks(self) -> list[int]:
        """Return the exponents of the costs on the axis."""
        low, high, *_ = map(int, self.bounds)
        return list(range(low, high + 1, 1 + (high - low) // 6))

    def labels(self) -> list[tuple[Point, float, float, str]]:
        """Return each system with the place of its name, and how the name is aligned there.

        Of the places beside, above and below its dot, the first one that covers no other name and
        no dot is taken; a system without any has no name but when its dot is pointed at.
        """
        dots = [(self.x(point.flops), self.y(point.score)) for point in self.points]
        taken = [(x - R, y - R, x + R, y + R) for x, y in dots]
        found = []
        for point, (x, y) in zip(self.points, dots, strict=True):
            width = CHARACTER * len(point.name)
            for dx, dy, align in PLACES:
                left = x + dx - {"begin": 0.0, "x": width / 2, "end": width}[align]
                box = (left, y + dy - LINE, left + width, y + dy)
                is_inside = left > self.LEFT and left + width < self.WIDTH
                if is_inside and not any(_overlap(box, other) for other in taken):
                    taken.append(box)
                    found.append((point, round(x + dx, 1), round(y + dy, 1), align))
                    break
        return found


R = 4.0  # of a dot
CHARACTER, LINE = 6.9, 10.0  # about, of a name
PLACES = (
    (7.0, 4.0, "begin"),
    (-7.0, 4.0, "end"),
    (0.0, -8.0, "x"),
    (0.0, 17.0, "x"),
    (7.0, -8.0, "begin"),
    (-7.0, -8.0, "end"),
    (-7.0, 17.0, "end"),
)

Box = tuple[float, float, float, float]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
