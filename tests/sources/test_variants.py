"""The variants of a language that become the sides of a text, and warnings about others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.sources.sides import find_sides, named_languages
from nmtkit.sources.variants import Variants
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
    assert "2 units" in str(chooser.warning())
    (note,) = chooser.notes()
    assert " 3 en-US" in note
    assert " 2 eng" in note
    nothing = variants("en", "de")
    nothing.choose([("en", "a"), ("fr", "b")], "memory")
    assert "'fr' (1)" in nothing.missing_reason()


@pytest.mark.parametrize(
    ("src", "tgt", "names", "sides"),
    [
        ("en", "id", "id English Indonesian", ([1], [0, 2])),
        ("en", "yue", "id en yue", ([1], [2])),
        ("en", "de", "ENGLISH Source Target trg", ([0, 1], [2, 3])),
        ("en", "de", "title_en text_en text-de de.txt", ([], [])),
        ("no", "is", "id no is it to or as", ([1], [2])),
        ("zh-Hans", "zh-Hant", "zh-TW zh-CN", ([1], [0])),
        ("zh-Hans", "zh-Hant", "zh", ([0], [])),
        ("pt", "pt-PT", "pt-PT pt-BR", ([1], [0])),
        ("en", "fr", "en fr-CA fr-FR", ([0], [1, 2])),
        ("en", "fr-FR", "en fr-CA fr-FR fr", ([0], [2])),
        ("src", "tgt", "src tgt", ([0], [1])),  # tags of Sardinian and of Central Tagbanwa
    ],
)
def test_find_sides(src: str, tgt: str, names: str, sides: tuple[list[int], list[int]]) -> None:
    assert find_sides(names.split(), variants(src, tgt).langs) == list(sides)


def test_choose_columns_refuses_by_name() -> None:
    chooser = variants("en", "de")
    for names, reason in (
        (["ID", "EN", "English", "de"], r"candidates for en: EN, English \(it has ID, EN, "),
        (["id", "en"], r"not have both en and de \(it has id, en\); do this"),
        (["source", "target", "source_lang"], "has source_lang, so the direction"),
        (["lp", "source", "target"], "has lp, so the direction"),
        (["source", "target", "Target locale"], "has Target locale, so the direction"),
        (["Source", "Target", "LANG PAIR"], "has LANG PAIR, so the direction"),
    ):
        with pytest.raises(UserError, match=reason):
            chooser.choose_columns(names, "a", "do this")
    assert chooser.choose_columns(["source_lang", "de", "en"], "a") == (2, 1)


# Names of one language, of one side, or of nothing.
MEANINGS = {
    **dict.fromkeys(["en", "EN", "eng", "English", " english ", "eng_Latn"], "en"),
    **dict.fromkeys(["de", "DEU", "ger", "German", "Deutsch"], "de"),
    **dict.fromkeys(["id", "ID", "Indonesian", "Bahasa Indonesia"], "id"),
    **dict.fromkeys(["no", "is", "it", "to", "or", "as", "日本語", "key", "url"], "other"),
    **dict.fromkeys(["src", "Source", "SOURCE"], "source"),
    **dict.fromkeys(["tgt", "Target", "trg"], "target"),
    **dict.fromkeys(["", "text_en", "English text", "en-text", "score", "German comment"], "-"),
}


@given(
    st.lists(st.sampled_from([*MEANINGS]) | st.text(), max_size=6),
    st.permutations(["en", "de", "id"]),
)
def test_columns_are_exact_or_refused(names: list[str], langs: list[str]) -> None:
    """The sides are the only names that mean them, or none are chosen."""
    src, tgt, _ = langs
    meant = [MEANINGS.get(name) for name in names]
    sources = [position for position, meaning in enumerate(meant) if meaning in (src, "source")]
    targets = [position for position, meaning in enumerate(meant) if meaning in (tgt, "target")]
    chooser = variants(src, tgt)
    if any(meaning is None for meaning in meant):  # any text may be a name
        named_languages(names)
        find_sides(names, chooser.langs)
    elif len(sources) == len(targets) == 1:
        assert chooser.choose_columns(names, "a") == (sources[0], targets[0])
    else:
        with pytest.raises(UserError):
            chooser.choose_columns(names, "a")
