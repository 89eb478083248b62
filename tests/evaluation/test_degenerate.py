"""Warnings of a test set whose translations are mostly empty or the same."""

import pytest

from nmtkit.evaluation.degenerate import MIN_LINES, degenerate_warning

SOURCES = [f"sentence {number}" for number in range(20)]


@pytest.mark.parametrize(
    ("hyps", "words"),
    [
        ([""] * 20, "20 of 20 translations are empty"),
        ([" "] * 11 + SOURCES[:9], "11 of 20 translations are empty"),
        (["a man"] * 11 + SOURCES[:9], "11 of 20 translations are 'a man'"),
        (["a man"] * 10 + SOURCES[:10], None),
        (SOURCES, None),
    ],
)
def test_empty_or_equal_translations(hyps: list[str], words: str | None) -> None:
    warning = degenerate_warning(zip(SOURCES, hyps, strict=True))
    assert warning is None if words is None else str(warning).startswith(words)


def test_blank_and_repeated_sources_do_not_count() -> None:
    assert degenerate_warning([("", "")] * 99) is None
    assert degenerate_warning([("a cat", "eine Katze")] * 99) is None


def test_few_translations_are_no_sign() -> None:
    pairs = [(src, "") for src in SOURCES]
    assert degenerate_warning(pairs[: MIN_LINES - 1]) is None
    assert degenerate_warning(pairs[:MIN_LINES]) is not None
