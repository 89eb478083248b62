"""The fast tokenizer against plain sacremoses, which knows no shortcut."""

# ruff: noqa: RUF001 - look-alike signs are what it must not trip over

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses.corpus import NonbreakingPrefixes

from nmtkit.corpus import moses_tokenizer as module
from nmtkit.corpus.moses_tokenizer import moses_tokenizer, plain_moses

LANGS = ("en", "de", "fr", "it", "cs", "ru", "pl", "zh")

SIGNS = [*"...,,,'''--\"&|<>[]()%:;!?`/@_$€’„“…²½٣\u00a0\u2028\u0085\t\x01\x1f\u00ad\u200b"]
LETTERS = [
    *"aabsSxXQЯяωⓐⅧªéß中국か\u0301\u094d\U0001d41a",
    "ab",
    "QQ",
    "house",
    "style",
    "DOT",
    "MULTI",
]
DIGITS = [*"0129", "00", "12", "345"]
PREFIXES = ["Mr.", "z.B.", "Nr.", "No.", "Art.", "e.g.", "c.-à-d.", "U.S.", "J.", "xx.", "г."]
KNOTS = ["'s", "n't", "l'", "d'", "''", "..", "...", ". ", ", ", "' '", "DOTMULTI", "@-@", "%s"]
TEXT = st.lists(
    st.one_of(*map(st.sampled_from, (SIGNS, LETTERS, DIGITS, PREFIXES, KNOTS, [" ", "  "])))
).map("".join)
# Few characters, so that all orders of three or four come up.
KNOTTED_TEXT = st.text("ab0.,' -s1", max_size=12)


@pytest.mark.parametrize("aggressive", [False, True])
@pytest.mark.parametrize("lang", LANGS)
@settings(deadline=None)  # the first line also loads the language
@given(line=TEXT | KNOTTED_TEXT)
def test_any_line_becomes_what_sacremoses_makes_of_it(
    lang: str, aggressive: bool, line: str
) -> None:
    assert moses_tokenizer(lang, aggressive)(line) == plain_moses(lang, aggressive, line)


@pytest.mark.parametrize(
    ("lang", "lines"),
    [
        # The same word, then beside other words.
        ("en", ["see No. 5", "see No. x", "see No. X", "see No.", "see No. ½", "No. .5"]),
        ("en", ["Mr. X", "went. And", "went. and", "went. 5", "went.", "went. 'and", "Mr."]),
        (
            "de",
            ["am 3. Mai", "am 30. Mai", "am 300. Mai", "am 300. mai", "Nr. 5", "xx. X", "Xx. X"],
        ),
        (
            "en",
            [
                "he's 'so",
                "'so",
                "x 'so",
                "1990's",
                "1990'sx",
                "1990'x",
                "½'s",
                "it's",
                "ⅧⅧ,5",
                "ab,5",
            ],
        ),
        ("en", ["x '1", "x' '1", "x ' ' y", "x' 'y", "x'", "x' y", "'x.'", "x.' y", "x.'"]),
        ("fr", ["d'aujourd'hui", "d'a'b", "l'd'aa'b", "c'est", "1'2'3", "11'22'33"]),
        ("en", [",5", "x ,5", "5,", "5, x", "5,x", "x,5", "5,5", "5,,5 ,", ",", ", ,"]),
        ("en", ["x...", "x... y", "x....'", "...", ". ...", "x. ... y", "x. .y", "DOTMULTI. x"]),
        ("en", ["QQ.", "00.", "Q.Q", "0.0", "QQ% 00%s", "xx's%", "a\u0301b,"]),
        ("en", ["a\x01b", "x' \x01 '1", "a\x1fb", "a.\u00a0b", "x'\u00a0'1", "\u00a0'x"]),
    ],
)
def test_a_remembered_word_minds_its_neighbours(lang: str, lines: list[str]) -> None:
    for line in lines * 2:
        for aggressive in (False, True):
            assert moses_tokenizer(lang, aggressive)(line) == plain_moses(lang, aggressive, line)


def test_stand_ins_are_part_of_no_prefix_of_any_language() -> None:
    prefixes = NonbreakingPrefixes()
    for lang in prefixes.available_langs:
        for prefix in prefixes.words(lang):
            assert "QQ" not in prefix
            assert "00" not in prefix


def test_memory_is_bounded_and_long_words_are_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_WORDS", 10)
    words = module._Words("en", False)
    for i in range(35):
        for word in (f"a{i}b,", "(" * 70 + f"{i}"):
            assert words[word] == plain_moses("en", False, word)
        assert len(words) == i % 10 + 1


@pytest.mark.slow
@pytest.mark.parametrize("aggressive", [False, True])
@pytest.mark.parametrize("lang", ["en", "de", "fr"])
def test_every_line_of_real_text_becomes_what_sacremoses_makes_of_it(
    lang: str, aggressive: bool, shared_data: Path
) -> None:
    news = [shared_data / folder for folder in ("wmt-news", "newstest")]
    text = "".join(
        path.read_bytes().decode() for folder in news for path in sorted(folder.glob(f"*.{lang}"))
    )
    for path in sorted((shared_data / "mirror").rglob(f"*.{lang}.gz")):
        text += gzip.decompress(path.read_bytes()).decode()
    tokenize = moses_tokenizer(lang, aggressive)
    lines = text.split("\n")
    assert len(lines) > 15_000
    for line in lines:
        assert tokenize(line) == plain_moses(lang, aggressive, line)
