"""Which variants of a language become the sides of a text, and what is said of the rest."""

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.sources.variants import Variants


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
        ("nb", "nn", {"nb-NO": "a", "nn": "b", "no": "c"}, ("a", "b")),
    ],
)
def test_the_exact_tag_comes_first_and_no_variant_is_swapped(
    src: str, tgt: str, unit: dict[str, str], pair: tuple[str, str] | None
) -> None:
    chooser = variants(src, tgt)
    assert chooser.choose(list(unit.items()), "memory") == pair
    assert chooser.skipped.total() == (pair is None)


def test_several_variants_of_which_none_is_named_are_refused() -> None:
    with pytest.raises(UserError, match="a has zh in several variants, zh-CN, zh-TW; name one"):
        variants("en", "zh").choose([("en", "x"), ("zh-CN", "y"), ("zh-TW", "z")], "a")
    mixed = variants("en", "sr")
    mixed.choose([("en", "x"), ("sr", "y")], "a")
    with pytest.raises(UserError, match="several variants"):  # two scripts in one corpus
        mixed.choose([("en", "x"), ("sr-Latn", "y")], "a")


def test_what_is_skipped_and_taken_is_counted_by_reason() -> None:
    chooser = variants("en", "de")
    for unit in (
        *([{"en-US": "a", "de": "b"}] * 3),
        *([{"eng": "a", "de": "b"}] * 2),
        {"en": "a", "fr": "b"},
        {"en": "a", "de": "\t"},
    ):
        chooser.choose(list(unit.items()), "memory")
    assert chooser.skipped == {"without de": 1, "with a blank de": 1}
    skipped, taken = chooser.notes()
    assert "2 units" in skipped
    assert all(each in taken for each in (" 3 en-US", " 2 eng"))
    nothing = variants("en", "de")
    nothing.choose([("en", "a"), ("fr", "b")], "memory")
    assert "'fr' (1)" in nothing.lack()
