"""detokenizer.perl: from tokens back to text.

It follows the script of 2023 (Moses 3445289); that of 2017 differs only in Korean. The
port in sacremoses differs from both in Czech, English, Finnish and Irish.
"""

import re
from collections.abc import Sequence
from unicodedata import category

# Entities by name: those of tokenizer.perl, and "bar", "bra" and "ket" of older versions.
_CHARACTERS = {
    "bar": "|",
    "#124": "|",
    "lt": "<",
    "gt": ">",
    "bra": "[",
    "ket": "]",
    "quot": '"',
    "apos": "'",
    "#91": "[",
    "#93": "]",
    "amp": "&",
}
_ENTITY = re.compile(f"&({'|'.join(_CHARACTERS)});")
# Punctuation that joins the word before it, but in French a space stays before some of it.
_CLOSING = re.compile(r"[,.?!:;\\%}\])]+")
# One or several quotation marks: whether they open or close depends on those before.
_QUOTES = re.compile("['\"„“`]+")
_SPACED_IN_FRENCH = frozenset(r"?!:;\%")
_NUMBER = re.compile("[0-9]+")
# The word after a dash that belongs to a Czech word: "je-li", "e-mail".
_CZECH_AFTER_DASH = re.compile("li$|mail", re.IGNORECASE)
# Case endings and clitics that Finnish joins to abbreviations with a colon: "EU:ssa".
_FINNISH_SUFFIX = re.compile(
    "([NnAaÄä]|[Ss]s[aä]|[Ss]t[aä]|[Hh][uy]n|[Hh][aäö]n|[UuYyAaÄäÖö]n|[Ss]een|[Ll]l[aä]|[Ll]t[aä]"
    "|[Ll]le|[Kk]s[ie]|[Tt]ta|[Ii]ne)(ni|si|mme|nne|nsa)?(ko|kö|han|hän|pa|pä|kaan|kään|kin)?"
)
# Scripts without spaces between words; Korean has them all the same.
_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\ua4cf\ua840-\ua87f\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc"
    "\U00020000-\U0002ffff]"
)


def detokenize(tokens: str, lang: str) -> str:
    """Join tokens into text like detokenizer.perl, with entities and "@-@" reverted.

    Args:
        tokens: Tokens separated by spaces.
        lang: A two-letter code, as in `detokenizer.perl -l`.
    """
    joined = f" {tokens} ".replace(" @-@ ", "-")
    unescaped = _ENTITY.sub(lambda entity: _CHARACTERS[entity[1]], joined)
    words = ["", "", *unescaped.split(), "", "", ""]  # padded: every word has neighbours
    open_quotes: set[str] = set()
    text = ""
    is_glued = True  # no space follows the text so far
    for i, word in enumerate(words[2:-3], start=2):
        if _QUOTES.fullmatch(word):
            left, right = _quote_sides(word, words[i - 1], lang, open_quotes)
        else:
            left = _joins_left(words, i, lang)
            right = _joins_right(words, i, lang)
        if not (left or is_glued) or (lang == "fr" and word in _SPACED_IN_FRENCH):
            text += " "
        # The script lowercases suffixes after a colon: EU : Ssa becomes EU:ssa.
        is_suffix = lang == "fi" and left and word[0].isalpha()
        text += word.lower() if is_suffix else word
        is_glued = right
    return text.lstrip()


def _joins_left(words: Sequence[str], i: int, lang: str) -> bool:
    """Return whether no space comes before a word that is not a quotation mark."""
    before = words[i - 1]
    word = words[i]
    if _CJK.match(word):
        return _CJK.match(before[-1:]) is not None and lang != "ko"
    if lang == "en" and word[0] == "'":
        return word[1:2].isalpha() and before[-1:].isalnum()
    if lang == "cs" and _NUMBER.fullmatch(word):
        return before in (".", ",") and _NUMBER.fullmatch(words[i - 2]) is not None
    if lang == "fi" and before[-1:] == ":" and _FINNISH_SUFFIX.fullmatch(word):
        return True
    return _CLOSING.fullmatch(word) is not None or _is_czech_dash(words, i, lang)


def _joins_right(words: Sequence[str], i: int, lang: str) -> bool:
    """Return whether no space comes after a word that is not a quotation mark."""
    word = words[i]
    after = words[i + 1]
    if lang in ("fr", "it") and word[-1] == "'":
        return word[-2:-1].isalpha() and after[:1].isalpha()
    # Brackets, inverted marks and signs of currency, such as "(" and "$".
    is_opening = all(sign in "([{¿¡" or category(sign) == "Sc" for sign in word)
    return is_opening or _is_czech_dash(words, i, lang)


def _is_czech_dash(words: Sequence[str], i: int, lang: str) -> bool:
    """Return whether the word is the dash of "je-li" or "e-mail", unless these end the line."""
    before, word, after, after_next = words[i - 1 : i + 3]
    return (
        lang == "cs"
        and word in ("-", "–")
        and before[-1:].isalpha()
        and _CZECH_AFTER_DASH.match(after) is not None
        and after_next != ""
    )


def _quote_sides(quote: str, before: str, lang: str, open_quotes: set[str]) -> tuple[bool, bool]:
    """Decide whether a quotation mark opens or closes a quotation.

    Args:
        quote: The mark, one or several characters.
        lang: A two-letter code.
        open_quotes: Kinds of quotations that are open; updated.

    Returns:
        Whether no space comes before the mark, and whether none comes after it.
    """
    # To the script, „ “ and ” are plain double marks: „a“ is one pair.
    kind = '"' if set(quote) <= set("„“”") else quote
    if lang == "cs" and quote == "„":  # it always opens
        open_quotes.discard(kind)
    if lang == "cs" and quote == "“":  # it always closes
        open_quotes.add(kind)
    if kind in open_quotes:
        open_quotes.discard(kind)
        return True, False
    if lang == "en" and quote == "'" and before.endswith("s"):  # the Jones' house
        return True, False
    open_quotes.add(kind)
    return False, True
