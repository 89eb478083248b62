"""Sentence splitting: the sentences of any line, concatenated, are the line."""

import time
from pathlib import Path

import pytest
import sentencex
from hypothesis import example, given
from hypothesis import strategies as st

from nmtkit.decoding import sentences
from nmtkit.decoding.sentences import WINDOW_CHARACTERS, split_sentences

LANGUAGES = [
    "en",
    "de",
    "fr",
    "zh",
    "ja",
    "ar",
    "hi",
    "th",
    "ko",
    "km",
    "sr-Latn",
    "xx",
    "tree",
    "",
]
# Ends of sentences, quotes, abbreviations, and the whitespace of Unicode.
PARTS = [
    ". ",
    "! ",
    "? ",
    "… ",
    "。",
    "\uff01",
    "؟ ",
    "। ",
    "။ ",
    "...",
    "?!",
    '" ',
    "' ",
    "”",
    "」",
    "Mr. ",
    "e.g. ",
    "z. B. ",
    "p. ex. ",
    "1. ",
    "3.50",
    "http://a.b/c?d. ",
    "a",
    "Hello",
    "我们",
    " ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\x85",
    "\x0b",
    "\x1f",
    "\u200b",
    "\x00",
    "é",
    "e\u0301",
    "ش",
    "म",
    "ไ",
    "\U0001f600",
    "\U00010400",
    "\ufeff",
    "(",
    ") ",
    "«",
    "“",
    "「",
    "『",
    "』",
    "\uff08",
    "\uff09",
    '"',
    "\u2019",
    "डॉ. ",
    "Nr. ",
    "Dipl.-Ing. ",
]
lines = st.lists(st.sampled_from(PARTS), max_size=60).map("".join) | st.text(max_size=80)


@given(lines, st.sampled_from(LANGUAGES))
@example(
    "\r\u2028a B\u00a0\n1-a \n-,. -B\u00a0;\u2028\u200b,1B\u200b\u2028.\u00a0-B\u2028;\x85\n", "gu"
)
def test_split_loses_nothing(line: str, lang: str) -> None:
    found = split_sentences(line, lang)
    assert "".join(found) == line
    assert all(found)


@given(lines, st.integers(1, 400))
def test_split_of_long_line_loses_nothing(line: str, n: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "WINDOW_CHARACTERS", 64)
        assert "".join(split_sentences(line * n, "en")) == line * n


@pytest.mark.parametrize(
    ("lang", "expected"),
    [
        ("en", ["Is it late? ", "Yes.  ", "We go!"]),
        ("en", ["Mr. Smith paid 3.50 to J. R. Brown, e.g. on Monday. ", "He left."]),
        ("de", ["Dr. Kuh kam z. B. am 3. Oktober. ", "Ja."]),
        ("fr", ["M. Dupont est là. ", "Il va bien."]),
        ("en", ["1. Wash it. ", "2. Dry it. 3."]),
        ("en", ["  ... Wait. ", "Go. :-) "]),
        ("zh", ["我们走。", "你好\uff01", "好。"]),
        ("ja", ["元気\uff1f", "はい。"]),
        ("ar", ["كيف الحال؟ ", "نعم."]),
        ("hi", ["वह घर गया। ", "हम भी गए।"]),
        ("th", ["สวัสดี ครับ"]),
        ("tlh", ["No list. ", "Of this."]),
        ("en", ["One.\u00a0", "Two.\u2028", "Three."]),
        ("en", ["12 345"]),
        # No boundary without a space, in scripts that have spaces.
        ("de", ["Das ist Dipl.-Ing. Weber. ", "Er grüßt."]),
        ("en", ["See a.Example and b.Example. ", "Then go."]),
        ("hi", ["वह गया।फिर आया। ", "ठीक है।"]),
        # None inside quotation marks and brackets, and none before a closing one.
        ("ja", ["彼は「行かない。」と言った。", "次の日は来た。"]),
        ("ja", ["「はい。」", "「いいえ。」と二人が答えた。"]),
        ("zh", ["他写了“好。行\uff01”三个字。", "她笑了。"]),
        ("zh", ["他说「走。"]),
        ("zh", ["他说「走。", "我们走了。"]),  # the quotation mark is never closed
        ("ko", ['그는 "안 가. 집에 있을래." 하고 말했다. ', "나는 웃었다."]),
        ("ko", ["(문이 열렸다.) ", "나는 들어갔다."]),
        ("en", ["He left [sic.] and came back. ", "We ate."]),
        # A lower-case word does not begin a sentence, unless the whole line is lower-case.
        ("fr", ["Renard & Cie. a fermé. ", "Tant pis."]),
        ("en", ["one is here. ", "two is not."]),
        ("de", ["Er kam am 2. Tag. ", "Das steht in Nr. 3. ", "Ja."]),
        ("en", ["  "]),
        ("en", []),
    ],
)
def test_split_examples(lang: str, expected: list[str]) -> None:
    assert split_sentences("".join(expected), lang) == expected


@pytest.mark.parametrize(
    "marks", ["「」", "『』", "《》", "〈〉", "【】", "\u3014\u3015", "\uff08\uff09"]
)
@pytest.mark.parametrize("lang", ["zh", "ja", "ko"])
def test_no_boundary_inside_marks(lang: str, marks: str) -> None:
    space = " " if lang == "ko" else ""
    inside = f"{marks[0]}一二。{space}三四\uff01{space}五六{marks[1]}"
    expected = [f"甲乙{inside}丙丁。{space}", "戊己。"]
    assert split_sentences("".join(expected), lang) == expected


# Names with a full stop of their own, such as that of a Japanese band.
KNOWN_MISTAKES = {"ja": 1}


def paragraphs() -> dict[str, list[list[str]]]:
    """The sentences of our own test paragraphs, by language."""
    found: dict[str, list[list[str]]] = {}
    path = Path(__file__).parent / "paragraphs.txt"
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            lang, text = line.split("\t")
            found.setdefault(lang, []).append(text.split("¦"))
    return found


@pytest.mark.parametrize("lang", ["en", "de", "fr", "zh", "ja", "ar", "hi"])
def test_split_of_paragraphs(lang: str) -> None:
    expected = paragraphs()[lang]
    found = [split_sentences("".join(sentences), lang) for sentences in expected]
    wrong = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    assert len(wrong) <= KNOWN_MISTAKES.get(lang, 0), wrong


@pytest.mark.parametrize("line", ["(" * 200_000, "(" * 90_000 + ")" * 90_000, '"' * 99_999])
def test_split_of_many_brackets_is_fast(line: str) -> None:
    begin = time.process_time()
    assert split_sentences(line, "zh") == [line]
    assert time.process_time() - begin < 10  # 0.5 s; quadratic time would be minutes


def test_split_of_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences do not end with windows, and no call is longer than a window."""
    lengths: list[int] = []
    segment = sentencex.segment

    def counting(lang: str, text: str) -> list[str]:
        lengths.append(len(text))
        found: list[str] = segment(lang, text)
        return found

    monkeypatch.setattr(sentencex, "segment", counting)
    expected = [f"This is Mr. Smith, number {n}. " for n in range(2_000)]
    assert split_sentences("".join(expected), "en") == expected
    clauses = "And so on, " * 2_000
    assert split_sentences(f"One. {clauses}end. Two.", "en") == ["One. ", f"{clauses}end. ", "Two."]
    assert max(lengths) <= WINDOW_CHARACTERS
    assert sum(lengths) < 3 * (len("".join(expected)) + len(clauses))


def test_split_without_trust_in_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentencex, "segment", lambda _, text: [text[:3], text[5:]])
    assert split_sentences("One. Two.", "en") == ["One. Two."]


@pytest.mark.parametrize(
    "expected",
    [
        ["<b>A cat sat.</b>"],
        ["<b>A cat sat.</b> ", "A dog ran."],
        ["<b>A cat sat.</b>", "<b>A dog ran.</b>"],
        ["<b><b>A cat sat.</b></b> ", "A dog ran.{0}"],
        ["A cat sat. ", "{0} A dog ran. {0}"],
        ["See {0}. ", "{1} is good."],
    ],
    ids=str,
)
def test_protected_token_stays_with_its_sentence(expected: list[str]) -> None:
    protected = ["<b>", "</b>", "{0}"]
    assert split_sentences("".join(expected), "en", protected) == expected


def test_longest_protected_token_is_moved() -> None:
    """A token that another one begins with does not cut that one in two."""
    expected = ["<b>A cat sat.</b>", "<b>A dog ran.</b>"]
    assert split_sentences("".join(expected), "en", ["</", "</b", "</b>", "<b>"]) == expected
