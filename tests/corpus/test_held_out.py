"""Pairs that are held out of a text: random, the same each time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.held_out import sample

TEXT = [(f"source {n}", f"target {n}") for n in range(2_000)]
pairs_of_few_words = st.lists(st.tuples(*[st.sampled_from("abcdefgh")] * 2), max_size=40)


@given(pairs_of_few_words, st.integers(1, 50))
def test_a_sample_holds_different_pairs_of_the_text_and_their_lines(
    pairs: list[tuple[str, str]], size: int
) -> None:
    chosen = sample(pairs, size)
    assert len(chosen) == min(size, len(set(pairs))) == len({one.pair for one in chosen})
    assert all(pairs.index(one.pair) == one.line - 1 for one in chosen)


def test_a_sample_is_random_and_the_same_in_any_order_of_the_text() -> None:
    chosen = sample(TEXT, 500)
    of_halves = Counter(one.line <= 1_000 for one in chosen)
    assert 200 < of_halves[True] < 300
    assert 100 < Counter(one.line <= 1_000 for one in chosen[:250])[True] < 150
    backwards = sample(TEXT[::-1], 500)
    assert [one.pair for one in backwards] == [one.pair for one in chosen]
