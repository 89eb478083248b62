"""Segments of SGML: those of one expression over the whole text, in bounded memory."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.errors import UserError
from nmtkit.sources import text
from nmtkit.sources.text import read_segments


def segments(content: str) -> list[str]:
    return list(read_segments(iter(content.split("\n")), "a.sgm"))


def test_a_segment_is_one_line() -> None:
    assert segments("<seg>a&#10;b\nc</seg><SEG id=2>d</SEG>\n") == ["a b c", "d"]


@pytest.mark.parametrize("content", ["<seg>a</seg>\n<seg>b\n", "<doc>\n<seg\n"])
def test_sgml_that_ends_in_a_segment_is_refused(content: str) -> None:
    with pytest.raises(UserError, match=r"a\.sgm is cut short: its last segment has no end"):
        segments(content)


TAGS = ["<seg", "<seg>", '<SEG id="1">', "</seg>", "</Seg>", "<", ">", "a &lt; b", " ", "\n"]


@given(st.lists(st.sampled_from(TAGS)).map("".join))
def test_segments_are_those_of_one_expression_over_the_whole_text(content: str) -> None:
    found = re.findall(r"(?is)<seg[^<>]*>(.*?)</seg>", f"{content}</seg>")
    expected = [html.unescape(" ".join(segment.split())) for segment in found]
    assert segments(f"{content}</seg>") == expected


@pytest.mark.parametrize("line", ["word\n", "\n"])
def test_a_segment_without_end_is_refused(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(text, "MAX_SEGMENT_CHARACTERS", 100)
    with pytest.raises(UserError, match="a segment longer than 100 characters"):
        segments("<seg>\n" + line * 100)
