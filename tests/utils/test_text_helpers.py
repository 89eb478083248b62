"""Printable text, invisible text, shortened values and durations."""

import json
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.utils.text import (
    describe_differences,
    duration,
    is_blank,
    quote,
    shorten,
    visible,
    visible_json,
)

JOINERS = "\u200c\u200d"


@given(st.text())
def test_visible_replaces_controls(value: str) -> None:
    printed = visible(value)
    categories = {category(character) for character in printed if character not in JOINERS}
    assert categories.isdisjoint({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
    assert len(printed) >= len(value)
    if value.isprintable():
        assert printed == value


@given(st.dictionaries(st.text(), st.text()))
def test_visible_json_means_the_same(values: dict[str, str]) -> None:
    text = json.dumps(values, ensure_ascii=False, indent=1)
    escaped = visible_json(text)
    assert json.loads(escaped) == values
    assert visible(escaped.replace("\n", "")) == escaped.replace("\n", "")


def test_visible_names_code_points() -> None:
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
def test_invisible_text_is_blank(text: str, blank: bool) -> None:
    assert is_blank(text) is blank


@given(st.text(), st.integers(min_value=3, max_value=80))
def test_shorten_limits_length(text: str, max_length: int) -> None:
    short = shorten(text, max_length)
    assert len(short) <= max_length
    assert short == visible(text) or (
        short.endswith("...") and visible(text).startswith(short[:-3])
    )


def test_quote_is_one_short_line() -> None:
    assert quote("a\nb") == repr("a\nb")
    assert quote(None) == "None"
    assert quote("\u202e" * 100).count("\n") == 0
    assert len(quote("x" * 100)) == 60


def test_differences_of_mappings() -> None:
    ours = {"d_k": 2, "norm": "pre", "d_v": 3}
    theirs = {"d_k": 4, "norm": "post", "d_v": 3}
    assert describe_differences(ours, theirs) == ('d_k = 2, norm = "pre"', 'd_k = 4, norm = "post"')
    assert describe_differences(ours, dict(ours)) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (179, "179 s"),
        (180, "3 min"),
        (179 * 60, "179 min"),
        (3 * 3_600, "3 h"),
        (71 * 3_600, "71 h"),
        (72 * 3_600, "3 days"),
        (86_400 * 12_345, "12,345 days"),
    ],
)
def test_duration_in_suitable_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
