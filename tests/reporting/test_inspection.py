"""What an inspection tells in tables, and that a terminal is safe from the text of a corpus."""

from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.reporting import tables
from nmtkit.reporting.facts import Inspection
from nmtkit.reporting.inspection import share
from nmtkit.reporting.tables import BLOCKS, print_inspection
from nmtkit.visible import visible


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


def row_of(out: str, *cells: str) -> str:
    """The one line that holds all cells, in their order."""
    (line,) = (
        line
        for line in out.split("\n")
        if [cell.strip() for cell in line.strip("│").split("│")][: len(cells)] == list(cells)
    )
    return line


def test_tables_tell_the_facts(
    inspection: Inspection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PIPE_WIDTH", 1_000)  # so that no cell is wrapped
    print_inspection(inspection, as_json=False)
    out = capsys.readouterr().out
    row_of(out, "one", "read", "3,000")
    row_of(out, "", "dropped: too long", "7", "0.23 %")
    row_of(out, "train", "4,200", "42,700", "42,761", "10.2", "10.2", "700", "16.7 %")
    blocks = "".join(BLOCKS[level] for level in (3, 8, 6, 0))
    assert blocks in row_of(out, "train", "en", "8", "13", "14", "15")
    row_of(out, "subwords that occur fewer than 10 times", "3,273", "33.6 %")
    row_of(out, "de", "1,234", "617", "50.0 %", "2.00")
    row_of(out, "dev", "en", "671", "11", "1.6 %")


def test_no_control_character_of_the_corpus_reaches_the_terminal(
    inspection: Inspection, capsys: pytest.CaptureFixture[str]
) -> None:
    print_inspection(inspection, as_json=False)
    out = capsys.readouterr().out
    assert {c for c in out if category(c) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}
    assert "<script>alert(1)</script>" in out  # which is harmless there
