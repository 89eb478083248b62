"""Comparisons hold on any text, and see an implementation that is wrong."""

import pytest

from nmtkit.languages import Language
from nmtkit.selftest import references
from nmtkit.selftest.environment import Check

LANGS = Language.of("en"), Language.of("de")
SRC = ["The well-known house, isn't it?", "Mr. Smith's 3 trees.", "", "a\u2028b c\u0085d", "No. 5"]
TGT = ["Das bekannte Haus, oder?", "Herrn Smiths 3. Baum", "Größe", "„Ja“, sagte er.", "Nr. 5"]


def checks() -> list[Check]:
    """The checks of this text."""
    return list(references.compare(SRC, TGT, LANGS))


def test_it_holds() -> None:
    assert [each.state for each in checks()] == ["held"]


def test_text_of_single_letters_has_nothing_to_learn() -> None:
    found = list(references.compare(["a"], ["b"], LANGS))
    assert [each.state for each in found] == ["skipped"]


@pytest.mark.parametrize("wrong", [[("a", "b")], []])
def test_a_wrong_implementation_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: object) -> None:
    monkeypatch.setattr(references, "learn_bpe", lambda *_: wrong)
    [found] = checks()
    assert found.state == "failed"
    assert found.seen
