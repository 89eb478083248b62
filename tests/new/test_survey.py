"""Pairs that are held out of a text: random, but reproducible."""

from hypothesis import given
from hypothesis import strategies as st

from nmtkit.new.survey import sample

TEXT = [(f"source {n}", f"target {n}") for n in range(2_000)]
pairs_of_few_words = st.lists(st.tuples(*[st.sampled_from("abcdefgh")] * 2), max_size=40)


@given(pairs_of_few_words, st.integers(1, 50))
def test_sample_has_distinct_pairs(pairs: list[tuple[str, str]], size: int) -> None:
    chosen = sample(pairs, size)
    assert len(chosen) == min(size, len(set(pairs))) == len({row.pair for row in chosen})
    assert all(pairs.index(row.pair) == row.line - 1 for row in chosen)


def test_sample_is_random_in_any_order() -> None:
    chosen = sample(TEXT, 500)
    assert 200 < sum(row.line <= 1_000 for row in chosen) < 300
    assert 100 < sum(row.line <= 1_000 for row in chosen[:250]) < 150
    backwards = sample(TEXT[::-1], 500)
    assert [row.pair for row in backwards] == [row.pair for row in chosen]
