"""Text as it can be shown, and text in which nothing is seen."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.utils.text import is_blank, visible


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


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \t\u00a0\u3000\u2028", True),
        ("\u200b\u00ad\ufeff\u2060\u180e\u200e\x00", True),
        ("\u3164\uffa0\u115f\ufe0f\u034f\U000e0001\U000e0100\u2800", True),
        ("\u200ba", False),
        ("\u2800.", False),
        ("\u0301", False),  # a combining accent
        ("\ue000", False),  # private use: a font may have it
        ("\U0001f44b\ufe0f", False),
    ],
)
def test_text_is_blank_if_nothing_is_seen(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
