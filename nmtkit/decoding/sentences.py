"""Split lines into sentences, with sentencex (https://github.com/wikimedia/sentencex).

Some of its boundaries are false, and are removed: a sentence that is cut translates worse than two
sentences in one piece.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

import sentencex

# The time that sentencex takes grows with the square of the number of sentences. Longer
# lines are therefore split window by window.
WINDOW_CHARACTERS = 4_096
CONTEXT_CHARACTERS = 64  # on each side of a boundary

_WHITESPACE = re.compile(r"\s")
# No letters, or a single one before a full stop: "1. ", "(a. ", "M. ".
_FRAGMENT = re.compile(r"[\W\d_]*+([^\W\d_]\.)?\s*+")
# Ends of sentences that sentencex does not find: "What?! ", "(He left.) ".
_MORE_ENDS = re.compile(r"(?:[!?]{2,}|\.[)\]])\s+(?=[^\W\d_])")

# A character of a script without spaces between sentences (from Thai to Tibetan, Burmese, Khmer,
# Chinese and Japanese with their punctuation), and marks that other scripts have too.
_UNSPACED_END = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff9f"
    "\U00020000-\U0003ffff]"
    r"[.!?…'\"”’)\]]*$"
)
# "im 2.", but neither "Nr. 2." nor "in Haus 2.": after a noun, a number is not an ordinal.
_ORDINAL = re.compile(r"(?:^\s*\S|\s[^\W\d_A-ZÄÖÜ])\S*(?<!\.)\s+\d{1,2}\.\s*$")
# A word before a full stop, without the quotation mark or bracket in front of it.
_ABBREVIATED = re.compile(r"(?:^|[\s(\[{„“\"'’«»‹/–—])([^\W_][^\s/–—]*)\.\s*$")
_FULL_STOP = re.compile(r"\.[)\]]?\s*$")
_LETTER = re.compile(r"[^\W\d_][\u0300-\u036f]*")

# Languages whose sentences do not end within quotation marks and brackets.
_ENCLOSING_LANGS = ("zh", "yue", "wuu", "lzh", "ja", "ko")
_PAIRS = dict(zip('「『《〈【〔（［([“‘«"', '」』》〉】〕）］)]”’»"', strict=True))
# Marks that no sentence begins with. ’ may be an apostrophe, and German quotations begin with ».
_CLOSING = re.compile(r"[)\]}）］｝」』】〕〉》”]|’(?=\s|$)")
_QUOTATION_ENDS = '」』”’"'

# Abbreviations that stay with the text that follows, in addition to those of sentencex.
_ABBREVIATIONS = {
    "ar": "هـ",
    "de": "Dipl Frl Hl Gebr Ing Mag Hrsg Abs Anm Aufl Abb Bd Kap Tab Vgl Verf geb gest Fa med jur",
    "el": "καθ αρ σελ",
    "en": "Vol Vols Sect Ch Eq Eqs Ed Eds Ft approx est",
    "es": "Srs Sres Profa Dª Cnel aprox",
    "fr": "Mme Mmes Mlle Mlles Mgr Me Dr Drs Pr Prof St Ste Sté Cie bd janv févr sept oct nov déc",
    "hi": "डॉ डा प्रो श्री श्रीमती सुश्री पं मो मोह कु रु रू स्व सं ई न्या ले कै कर्न जन इं एड पृ वि ए बी सी डी "
    "एफ जी एच जे के एल एम एन पी आर एस टी यू वी",
    "hu": "ifj özv",
    "it": "Dott.ssa Prof.ssa Don pag pagg",
    "nl": "mevr mw hoofdst Jhr",
    "pl": "dr inż mgr hab ks św prof gen płk ppłk kpt por str rys ul al",
    "pt": "Srta Profa Arq Exma Sta Av pág págs vol cap tel",
    "ro": "dl dna str",
    "ru": "рис табл им доц г-н г-жа инж св",
    "tr": "Doç Av Sn Yrd Öğr Alb",
}
# Abbreviations only before a number, such as "No. 5": the others are also words.
_BEFORE_NUMBERS = {
    "de": "Nr Okt Dez Art Tel",
    "en": "No Nos p pp",
    "fr": "n no t art p pp",
    "it": "n art",
    "nl": "nr art",
    "pl": "nr",
    "pt": "n ed",
    "sv": "kl kap",
}
# Languages with a mark of their own (U+0964) for the end of a sentence. In a line that has it, a
# full stop is part of an abbreviation.
_DANDA = "।"
_DANDA_LANGS = ("hi", "ne", "sa", "bn", "as", "or", "pa", "bho", "mai", "awa", "mag")


def split_sentences(line: str, lang: str, protected: Sequence[str] = ()) -> list[str]:
    """Split a line into sentences, with the whitespace that follows them.

    A number or an initial, such as "1." and the "M." of "M. Dupont", is not a sentence: it belongs
    to the one that follows.

    Args:
        line: Any text.
        lang: Code of its language, for abbreviations. sentencex falls back to a related language,
            or to English.
        protected: Tokens such as "</b>". Directly after a sentence, they are part of it.

    Returns:
        Sentences that are the line when they are joined.
    """
    language = re.split("[-_]", lang)[0]
    enclosed = _enclosed(line) if language in _ENCLOSING_LANGS else None
    has_capitals = line != line.lower()
    has_danda = language in _DANDA_LANGS and _DANDA in line
    more_ends = [match.end() for match in _MORE_ENDS.finditer(line)]
    sentences: list[str] = []
    start = 0  # of the sentence
    part_start = 0  # of what sentencex takes for a sentence; it may be a fragment
    for part_end in sorted({*_boundaries(line, lang), *more_ends}):
        is_fragment = _FRAGMENT.fullmatch(line, part_start, part_end)
        part_start = part_end
        if is_fragment or (enclosed and enclosed[part_end]):
            continue
        # A few characters on both sides are enough for all rules.
        before = line[max(start, part_end - CONTEXT_CHARACTERS) : part_end]
        after = line[part_end : part_end + CONTEXT_CHARACTERS]
        if (
            _needs_space(before, after, protected)
            or (enclosed and _goes_on_after_quotation(before, after, language))
            or _CLOSING.match(after)
            or (has_capitals and _is_lower_case(after) and _FULL_STOP.search(before))
            or (has_danda and before.rstrip().endswith("."))
            or _is_abbreviated(before, after, language)
        ):
            continue
        sentences.append(line[start:part_end])
        start = part_end
    if start < len(line):
        # A fragment at the end of the line belongs to the sentence before it.
        rest = line[start:]
        is_fragment = _FRAGMENT.fullmatch(rest)
        if is_fragment and sentences:
            rest = sentences.pop() + rest
        sentences.append(rest)
    return _with_protected(sentences, protected) if protected else sentences


def _enclosed(line: str) -> list[bool]:
    """Return, for each position of a line, whether it is inside quotation marks or brackets.

    Marks without a counterpart enclose nothing.
    """
    opened: list[tuple[str, int]] = []  # the closing marks, and the positions after opening ones
    expected: Counter[str] = Counter()  # the closing marks
    changes = [0] * (len(line) + 2)  # of the number of marks around a position
    for index, character in enumerate(line):
        if expected[character]:
            mark = ""
            # Marks that were opened later have no counterpart.
            while mark != character:
                mark, first = opened.pop()
                expected[mark] -= 1
            changes[first] += 1
            changes[index + 1] -= 1
        elif character in _PAIRS:
            opened.append((_PAIRS[character], index + 1))
            expected[_PAIRS[character]] += 1
    return [depth > 0 for depth in accumulate(changes)]


def _needs_space(before: str, after: str, protected: Sequence[str]) -> bool:
    """Return whether a boundary lacks the space that sentences of its script have between them."""
    if not after or before[-1].isspace() or _UNSPACED_END.search(before):
        return False
    return not after.startswith(tuple(protected))


def _goes_on_after_quotation(before: str, after: str, language: str) -> bool:
    """Return whether a Chinese, Japanese or Korean sentence goes on after a quotation or bracket.

    Args:
        before: The end of the text before a boundary.
        after: The beginning of the text after it.
    """
    if after[:1] in _PAIRS:
        return False  # another quotation
    # In Korean, a verb may follow after a space.
    mark = before.rstrip()[-1:]
    if language == "ko" and mark:
        return mark in _QUOTATION_ENDS
    return before[-1] in _PAIRS.values()


def _is_lower_case(text: str) -> bool:
    """Return whether a text begins with a lower-case word of an alphabet with capitals."""
    # Georgian letters are lower-case, but sentences have no capitals. "iPhone" is a name.
    return text[:1].islower() and text[0] < "\u0590" and not text[1:2].isupper()


def _is_abbreviated(before: str, after: str, language: str) -> bool:
    """Return whether a text ends in an abbreviation that stays with the text that follows.

    Args:
        before: The end of the text before a boundary.
        after: The beginning of the text after it.
    """
    match = _ABBREVIATED.search(before)
    if not match or not after:
        return False
    word = match[1]
    if language == "de" and word.isdecimal():
        return _ORDINAL.search(before) is not None and after[0].isalpha()
    last = word.rpartition("-")[2]  # "Dipl.-Ing.", "J.-P."
    if _LETTER.fullmatch(last):
        return word != "I" or language != "en"
    names = _ABBREVIATIONS.get(language, "").split()
    if after[0].isdecimal():
        names += _BEFORE_NUMBERS.get(language, "").split()
    return not {word, last}.isdisjoint(names)


def _with_protected(sentences: Sequence[str], protected: Sequence[str]) -> list[str]:
    """Move protected tokens that directly follow a sentence to its end."""
    longest_first = sorted(protected, key=len, reverse=True)
    token = "|".join(re.escape(token) for token in longest_first)
    # All tokens up to a space, or the first one if text follows: "One.</b><b>Two."
    leading = re.compile(rf"(?:{token})+(?:\s+|$)|(?:{token})")
    moved: list[str] = []
    for sentence in sentences:
        start = 0
        if moved and not moved[-1][-1].isspace():
            match = leading.match(sentence)
            start = match.end() if match else 0
            moved[-1] += sentence[:start]
        if start < len(sentence):
            moved.append(sentence[start:])
    return moved


def _boundaries(text: str, lang: str) -> Iterator[int]:
    """Yield the positions at which sentencex ends sentences; the last is the end of the text.

    Only lengths are taken from sentencex: no character can be lost. It expects whitespace
    of one byte.
    """
    start = 0  # of the window
    while start < len(text):
        window = _WHITESPACE.sub(" ", text[start : start + WINDOW_CHARACTERS])
        lengths = [len(sentence) for sentence in sentencex.segment(lang, window)]
        # If it has dropped or added characters, the window stays whole.
        if sum(lengths) != len(window):
            lengths = [len(window)]
        if start + len(window) < len(text):
            if len(lengths) == 1:  # a sentence that is longer than the window
                start += len(window)
                continue
            lengths.pop()  # it may continue in the next window
        for length in lengths:
            start += length
            yield start
