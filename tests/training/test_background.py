"""What a thread makes ahead of time."""

from collections.abc import Iterator

import pytest

from nmtkit.training.trainer import ahead


def test_what_is_made_ahead_comes_in_order_and_not_too_early() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for i in range(9):
            asked.append(i)
            yield i

    made = ahead(items(), lambda i: 10 * i, n_ahead=2)
    assert next(made) == 0
    assert asked == [0, 1, 2]
    assert list(made) == [10, 20, 30, 40, 50, 60, 70, 80]


def test_an_error_ahead_is_raised_where_its_turn_comes() -> None:
    made = ahead([4, 2, 0, 1], lambda i: 8 // i)
    assert [next(made), next(made)] == [2, 4]
    with pytest.raises(ZeroDivisionError):
        next(made)
