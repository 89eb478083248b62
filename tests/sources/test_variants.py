"""The variants of a language that become the sides of a text, and warnings about others."""

import pytest

from nmtkit.sources.sides import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language


def variants(src: str, tgt: str) -> Variants:
    return Variants(Language.of(src), Language.of(tgt))


@pytest.mark.parametrize(
    ("src", "tgt", "unit", "pair"),
    [
        ("pt-BR", "pt-PT", {"pt-PT": "comboio", "pt-BR": "trem"}, ("trem", "comboio")),
        ("pt", "pt-PT", {"pt-PT": "comboio", "pt-BR": "trem"}, ("trem", "comboio")),
        ("pt", "pt-PT", {"pt-PT": "comboio"}, None),  # one variant is not both sides
        ("en", "zh-TW", {"en": "a", "zh-CN": "s", "zh-TW": "t"}, ("a", "t")),
        ("en", "zh_Hant_TW", {"en": "a", "zh-CN": "s", "zh-TW": "t"}, ("a", "t")),
        ("en", "cmn_Hans", {"en": "a", "zh": "s", "zh-Hant": "t"}, ("a", "s")),
        ("en", "sr-Latn", {"en": "a", "sr": "c", "sr_Latn": "l"}, ("a", "l")),
        ("en", "sr", {"en": "a", "sr-Latn": "l"}, ("a", "l")),
        ("en", "sr-Cyrl", {"en": "a", "sr-Latn": "l", "srp": "c"}, ("a", "c")),
        ("eng", "ger", {"en": "a", "de": "b"}, ("a", "b")),
        ("en", "de", {"ENG": "a", "de-AT": "b"}, ("a", "b")),
        ("en-GB", "de", {"en-US": "a", "de": "b"}, None),
        ("en", "fr", {"en": "", "en-US": "a", "fr": " ", "fr-CA": "b"}, ("a", "b")),
        ("en", "fr", {"en": "a", "fr": " "}, None),
        ("zh", "zh-TW", {"zh-Hant": "a"}, None),  # one text is not both sides
        ("zh-Hans", "zh-Hant", {"zh": "a", "zh-HK": "b"}, ("a", "b")),
        ("en", "kor", {"eng_Latn": "a", "kor_Hang": "b"}, ("a", "b")),
        ("sr-Cyrl", "en", {"en": "a", "sr-Latn": "b"}, None),
        ("nb", "nn", {"nb-NO": "a", "nn": "b", "no": "c"}, ("a", "b")),
    ],
)
def test_exact_variant_comes_first(
    src: str, tgt: str, unit: dict[str, str], pair: tuple[str, str] | None
) -> None:
    chooser = variants(src, tgt)
    assert chooser.choose(list(unit.items()), "memory") == pair
    assert chooser.skipped.total() == (pair is None)


def test_ambiguous_variants_are_refused() -> None:
    with pytest.raises(UserError, match="zh-CN, zh-TW"):
        variants("en", "zh").choose([("en", "x"), ("zh-CN", "y"), ("zh-TW", "z")], "a")
    mixed = variants("en", "sr")
    mixed.choose([("en", "x"), ("sr", "y")], "a")
    with pytest.raises(UserError, match="several variants"):  # two scripts in one corpus
        mixed.choose([("en", "x"), ("sr-Latn", "y")], "a")


def test_further_texts_are_counted() -> None:
    chooser = variants("en", "de")
    for unit in (
        [("en", "x"), ("de", "y"), ("de-DE", "ignored"), ("deu", "z")],
        [("en", "x"), ("de", "y"), ("de", "y")],
        [("en", "x"), ("de", "y"), ("de", " ")],
        [("en", "x"), ("de", "y"), ("fr", "z"), ("fr", "w")],
    ):
        assert chooser.choose(unit, "memory") == ("x", "y")
    [warning] = chooser.warnings()
    assert "several texts in de of 1 unit" in warning


def test_skipped_units_are_counted() -> None:
    chooser = variants("en", "de")
    for unit in (
        *([{"en-US": "a", "de": "b"}] * 3),
        *([{"eng": "a", "de": "b"}] * 2),
        {"en": "a", "fr": "b"},
        {"en": "a", "de": "\t"},
    ):
        chooser.choose(list(unit.items()), "memory")
    assert chooser.skipped == {"without de": 1, "with a blank de": 1}
    assert "2 units" in chooser.warnings()[0]
    (note,) = chooser.notes()
    assert " 3 en-US" in note
    assert " 2 eng" in note
    nothing = variants("en", "de")
    nothing.choose([("en", "a"), ("fr", "b")], "memory")
    assert "'fr' (1)" in nothing.missing_reason()
