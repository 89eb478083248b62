"""Cleaning, compared with the rules of clean-corpus-n.perl, and repeated pairs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.cleaning import Cleaning, SeenPairs

CLEANING = Cleaning(min_tokens=2, max_tokens=7, max_ratio=1.5)

sides = st.lists(st.sampled_from(["a", "bc", "", "\u00a0", "x" * 1000, "y" * 1001]), max_size=9)


def kept_by_the_script(src: str, tgt: str, low: int, high: int, ratio: float) -> bool:
    """Follow the script line by line, with its variables e and f."""
    e, f = (re.sub(r"^ | $", "", re.sub(r"\s+", " ", side)) for side in (tgt, src))
    if f == "" or e == "":
        return False
    ec = len(e.split(" "))
    fc = len(f.split(" "))
    if ec > high or fc > high or ec < low or fc < low:
        return False
    if ec / fc > ratio or fc / ec > ratio:
        return False
    return not (re.search(r"[^\s|]{1001}", e) or re.search(r"[^\s|]{1001}", f))


@given(sides, sides)
def test_kept_pairs_equal_script(src: list[str], tgt: list[str]) -> None:
    pair = (" ".join(src), " ".join(tgt))
    assert (CLEANING.reason_to_drop(*pair) is None) == kept_by_the_script(*pair, 2, 7, 1.5)


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("a b", "c d", None),
        ("", "c d", "empty"),
        ("a b", " \u00a0 ", "empty"),
        ("a b c d e f g h", "c d", "too_long"),
        ("a b c d e f g", "a b c d e", None),
        ("a", "c d", "too_short"),
        ("a b c d", "c d", "ratio"),
        ("a b c", "c d", None),
        ("a " + "b" * 1001, "c d", "long_word"),
        ("a " + "b" * 1000, "c d", None),
    ],
)
def test_reason_to_drop(src: str, tgt: str, reason: str | None) -> None:
    assert CLEANING.reason_to_drop(src, tgt) == reason
    assert CLEANING.reason_to_drop(tgt, src) == reason


few_texts = st.text("ab 1", max_size=3)
streams = st.lists(st.lists(st.tuples(few_texts, few_texts), max_size=7), max_size=9)


@given(streams)
def test_repeated_pairs_equal_list(chunks: list[list[tuple[str, str]]]) -> None:
    seen = SeenPairs()
    before: list[tuple[str, str]] = []
    for chunk in chunks:
        every = [*before, *chunk]
        expected = {i for i, pair in enumerate(chunk) if pair in every[: len(before) + i]}
        assert seen.repeated(chunk) == expected
        before = every
