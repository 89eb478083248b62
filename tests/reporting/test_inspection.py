"""What an inspection tells in tables, and text as it can be shown."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.reporting.grid import as_csv
from nmtkit.reporting.inspection import (
    Inspection,
    corpora_grid,
    lengths_grid,
    notes,
    sample_grids,
    share,
    vocabulary_grid,
)
from nmtkit.visible import visible
from reporting.conftest import HOSTILE


@given(st.integers(1, 10**9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_share_is_0_only_of_nothing_and_100_only_of_all(numbers: tuple[int, int]) -> None:
    part, whole = numbers
    shown = share(part, whole)
    assert (shown == "0 %") == (part == 0)
    assert (shown == "100 %") == (part == whole)
    if shown == "< 0.01 %":
        assert 0 < part / whole < 0.0001
    else:
        percent = 100 * part / whole if part == whole else min(100 * part / whole, 99.99)
        precision = 0.0051 if percent < 1 or percent > 99.01 else 0.051
        assert float(shown.removesuffix(" %")) == pytest.approx(percent, abs=precision)
        assert part == 0 or float(shown.removesuffix(" %")) > 0


@given(st.text())
def test_visible_text_holds_nothing_that_acts_on_its_surroundings(value: str) -> None:
    shown = visible(value)
    assert {category(c) for c in shown if c not in "\u200c\u200d"}.isdisjoint(
        {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    )
    assert len(shown) >= len(value)
    if value.isprintable():
        assert shown == value


def test_unseen_characters_are_named() -> None:
    assert visible("a\u202eb\x1bc\u2028\U000e0041") == "a<U+202E>b<U+001B>c<U+2028><U+E0041>"
    assert visible("\u0646\u200c\u0647\u00a0\u3000\u0301") == "\u0646\u200c\u0647\u00a0\u3000\u0301"


def shown(inspection: Inspection) -> str:
    return "\n".join(notes(inspection)) + "".join(
        as_csv(grid)
        for grid in (
            corpora_grid(inspection),
            lengths_grid(inspection),
            vocabulary_grid(inspection),
            *sample_grids(inspection),
        )
    )


def test_tables_tell_the_facts(inspection: Inspection) -> None:
    for fact in (
        "Training leaves out 700 of the pairs that were kept (16.7 %)",
        f"Words of dev, de, with an unknown token: {HOSTILE} 12",
        "one,read,3000,",
        "one,dropped: too long,7,0.23 %",
        '"train, 4,200 pairs",en,8,13,14,15,10.2,42700,700,1.6 %',
        '"train, 4,200 pairs",de/en,1.00,1.25,1.50,7.50,,,,',
        '"dev, 66 pairs",en,8,13,14,15,10.2,671,11,1.6 %',
        "rows of the embedding matrix,9736,",
        "subwords that occur fewer than 10 times in train,3273,33.6 %",
        "de words of dev that are one subword,617,50.0 %",
        "subwords per de word of dev,2.00,",
        "raw,en,",
        "too long,",
    ):
        assert fact in shown(inspection)
