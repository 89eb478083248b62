"""Text in which nothing is seen."""

import pytest

from nmtkit.visible import is_blank


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
        ("\u06dd", False),  # the Arabic end of a verse
        ("\ue000", False),  # private use: a font may have it
        ("\U0001f44b\ufe0f", False),
    ],
)
def test_text_is_blank_if_nothing_is_seen(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
