"""The names of columns, keys and files that are the sides of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.sources.sides import choose_columns, find_sides, named_languages
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language


def languages(src: str, tgt: str) -> tuple[Language, Language]:
    return Language.of(src), Language.of(tgt)


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
    assert find_sides(names.split(), languages(src, tgt)) == list(sides)


def test_choose_columns_refuses_by_name() -> None:
    langs = languages("en", "de")
    for names, reason in (
        (["ID", "EN", "English", "de"], r"candidates for en: EN, English \(it has ID, EN, "),
        (["id", "en"], r"not have both en and de \(it has id, en\); do this"),
        (["source", "target", "source_lang"], "has source_lang, so the direction"),
        (["lp", "source", "target"], "has lp, so the direction"),
        (["source", "target", "Target locale"], "has Target locale, so the direction"),
        (["Source", "Target", "LANG PAIR"], "has LANG PAIR, so the direction"),
    ):
        with pytest.raises(UserError, match=reason):
            choose_columns(names, langs, "a", "do this")
    assert choose_columns(["source_lang", "de", "en"], langs, "a") == (2, 1)


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
def test_columns_are_exact_or_refused(names: list[str], tags: list[str]) -> None:
    """The sides are the only names that mean them, or none are chosen."""
    src, tgt, _ = tags
    meant = [MEANINGS.get(name) for name in names]
    sources = [position for position, meaning in enumerate(meant) if meaning in (src, "source")]
    targets = [position for position, meaning in enumerate(meant) if meaning in (tgt, "target")]
    langs = languages(src, tgt)
    if any(meaning is None for meaning in meant):  # any text may be a name
        named_languages(names)
        find_sides(names, langs)
    elif len(sources) == len(targets) == 1:
        assert choose_columns(names, langs, "a") == (sources[0], targets[0])
    else:
        with pytest.raises(UserError):
            choose_columns(names, langs, "a")
