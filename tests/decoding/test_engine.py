"""Functions of all engines."""

from hypothesis import given
from hypothesis import strategies as st

from nmtkit.decoding.engine import map_groups


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=5))
def test_map_groups_keeps_the_groups(groups: list[list[int]]) -> None:
    calls: list[list[int]] = []

    def double(items: list[int]) -> list[int]:
        calls.append(items)
        return [2 * item for item in items]

    assert map_groups(double, groups) == [double(group) for group in groups]
    assert [item for group in groups for item in group] == calls[0]
