"""Comparisons hold on any text, and see an implementation that is wrong."""

from typing import Any

import pytest

from nmtkit.evaluation.bleu import Bleu
from nmtkit.languages import Language
from nmtkit.selftest import references
from nmtkit.selftest.environment import Check

LANGS = Language.of("en"), Language.of("de")
SRC = ["The well-known house, isn't it?", "Mr. Smith's 3 trees.", "", "a\u2028b c\u0085d", "No. 5"]
TGT = ["Das bekannte Haus, oder?", "Herrn Smiths 3. Baum", "Größe", "„Ja“, sagte er.", "Nr. 5"]


def checks() -> list[Check]:
    """The checks of this text."""
    return list(references.compare(SRC, TGT, LANGS))


def test_all_hold() -> None:
    found = checks()
    assert [each.state for each in found] == ["held"] * 5
    assert found[0].seen == "5 lines as sacremoses tokenizes them"


def test_text_of_single_letters_has_nothing_to_learn() -> None:
    found = list(references.compare(["a"], ["b"], LANGS))
    states = [each.state for each in found]
    assert states == ["held", "held", "skipped", "held", "held"]


def off(*_: Any, **__: Any) -> Bleu:
    """A score that is wrong."""
    return Bleu(0.125, (), 1.0, 1, 1)


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("moses_tokenizer", lambda *_: str, "tokens, en"),
        ("learn_bpe", lambda *_: [("a", "b")], "BPE learned"),
        ("learn_bpe", lambda *_: [], "BPE learned"),
        ("multi_bleu", off, "tokenized BLEU"),
        ("sacre_bleu", off, "sacreBLEU"),
    ],
)
def test_a_wrong_implementation_is_seen(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: object, what: str
) -> None:
    monkeypatch.setattr(references, name, wrong)
    failed = [each for each in checks() if each.state == "failed"]
    assert what in [each.what for each in failed]
    assert all(each.seen for each in failed)
