"""Pairs seen before are found, however many came between."""

from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.cleaning import SeenPairs

few_texts = st.text("ab 1", max_size=3)
streams = st.lists(st.lists(st.tuples(few_texts, few_texts), max_size=7), max_size=9)


@given(streams)
def test_the_same_places_as_with_a_list_of_pairs(chunks: list[list[tuple[str, str]]]) -> None:
    seen, before = SeenPairs(), list[tuple[str, str]]()
    for chunk in chunks:
        every = [*before, *chunk]
        expected = {i for i, pair in enumerate(chunk) if pair in every[: len(before) + i]}
        assert seen.repeated(chunk) == expected
        before = every
