"""Pairs seen before are found, however many came between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus import duplicates
from nmtkit.corpus.duplicates import SeenPairs

Pair = tuple[str, str]

few_texts = st.text("ab 1", max_size=3)
streams = st.lists(st.lists(st.tuples(few_texts, few_texts), max_size=7), max_size=9)


def repeated_by_a_set(chunks: list[list[Pair]]) -> list[set[int]]:
    seen: set[Pair] = set()
    found: list[set[int]] = []
    for chunk in chunks:
        found.append(set())
        for place, pair in enumerate(chunk):
            if pair in seen:
                found[-1].add(place)
            seen.add(pair)
    return found


@given(chunks=streams, min_recent=st.integers(0, 5))
def test_the_same_places_as_with_a_set_of_pairs(chunks: list[list[Pair]], min_recent: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "MIN_RECENT", min_recent)
        seen = SeenPairs()
        assert [set(seen.repeated(chunk)) for chunk in chunks] == repeated_by_a_set(chunks)


def test_sides_do_not_run_into_each_other() -> None:
    assert SeenPairs().repeated([("a b", "c"), ("a", " bc"), ("a", "bc"), ("ab", "c")]) == set()
