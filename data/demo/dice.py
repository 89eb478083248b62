"""Random choices that are the same on every machine.

Only `Random.random` is used, whose numbers do not change between versions of Python.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """A seeded source of choices."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, n: int) -> int:
        """Roll a number from 0 to n - 1."""
        return int(self._random.random() * n)

    def between(self, low: int, high: int) -> int:
        """Roll a number from low to high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """Come up true that often."""
        return self.below(100) < percent

    def pick(self, choices: Sequence[T]) -> T:
        """Pick one of some equally likely things."""
        return choices[self.below(len(choices))]

    def weigh(self, weights: Sequence[tuple[int, T]]) -> T:
        """Pick one of some things, each as likely as its weight."""
        point = self.below(sum(weight for weight, _ in weights))
        for weight, choice in weights:
            point -= weight
            if point < 0:
                return choice
        raise AssertionError("the point lies within the weights")
