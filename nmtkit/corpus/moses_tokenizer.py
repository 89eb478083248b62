"""tokenizer.perl by sacremoses, with the prefixes and apostrophes of 2017 and Perl's classes."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from sacremoses import MosesTokenizer
from sacremoses.corpus import Perluniprops

# Ranges of code points that are letters for Perl (5.36, Unicode 14), but neither for Python nor in
# the lists of sacremoses: vowel signs and other marks, and letters in squares and circles.
MORE_LETTERS = """
8d4-8df 8e3 afa-afc d00 d81 1063-1064 1069-106d 1087-108d 108f 109a-109b 1abf-1ac0 1acc-1ace 1c36
a69e a802 a80b a8c5 a8ff a9e5 aa7b-aa7d 10376-1037a 10a01-10a03 10a05-10a06 10a0c-10a0f
10d24-10d27 10eab-10eac 11000-11002 11038-11045 11073-11074 11082 110b0-110b8 110c2 11100-11102
11127-11132 11145-11146 11180-11182 111b3-111bf 111ce-111cf 1122c-11234 11237 1123e 112df-112e8
11300-11303 1133e-11344 11347-11348 1134b-1134c 11357 11362-11363 11435-11441 11443-11445
114b0-114c1 115af-115b5 115b8-115be 115dc-115dd 11630-1163e 11640 116ab-116b5 1171d-1172a
1182c-11838 11930-11935 11937-11938 1193b-1193c 11940 11942 119d1-119d7 119da-119df 119e4
11a01-11a0a 11a35-11a39 11a3b-11a3e 11a51-11a5b 11a8a-11a97 11c2f-11c36 11c38-11c3e 11c92-11ca7
11ca9-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d41 11d43 11d47 11d8a-11d8e 11d90-11d91
11d93-11d96 11ef3-11ef6 16f4f 16f51-16f87 16f8f-16f92 16ff0-16ff1 1bc9e 1e000-1e006 1e008-1e018
1e01b-1e021 1e023-1e024 1e026-1e02a 1e947 1f130-1f149 1f150-1f169 1f170-1f189
"""
# Characters in the lists of sacremoses that are not letters.
NOT_LETTERS = "\u135f\u25cc"
# Prefixes of sacremoses that the script of 2017 does not have, by language. Those of Spanish,
# Italian, Dutch and Slovak are in its lists, but with a space after them that no word has; the
# others are newer.
NEWER_PREFIXES = {
    "en": "Rs",
    "es": "Fil gr pÃ¡g",
    "it": "Amn Arch all es",
    "nl": "Nrs",
    "sk": "Pf",
    "sv": "adv apr aug d dec f feb fil jan jul jun jur kand lic mag mar mha nov okt prop s sep vol "
    "Ä Å Ö",
}
# Rules of sacremoses whose patterns contain character classes.
CLASS_RULES = (
    "PAD_NOT_ISALNUM",
    "AGGRESSIVE_HYPHEN_SPLIT",
    "COMMA_SEPARATE_1",
    "COMMA_SEPARATE_2",
    "COMMA_SEPARATE_3",
)
# Those of apostrophes, by language. Other languages have rules without classes.
APOSTROPHE_RULES = {
    "en": "ENGLISH_SPECIFIC_APOSTROPHE",
    "fr": "FR_IT_SPECIFIC_APOSTROPHE",
    "it": "FR_IT_SPECIFIC_APOSTROPHE",
}

# Letters and digits are below this number.
ALL_CODE_POINTS = 0x40000
# Python finds a character below this number in a class by one look-up, and compares others with all
# ranges of the class, one by one.
FAST_CODE_POINTS = 0x10000

# Rare characters below FAST_CODE_POINTS, one per kind of character that the rules distinguish:
# lowercase letter, other letter, digit, numeral that is a letter, other number, anything else.
STAND_INS = "\u1e9d\ua000\u1946\u2188\u2473\u2603"
_REPLACED = re.compile(f"[\U00010000-\U0010ffff{STAND_INS}]")
_STAND_IN = re.compile(f"[{STAND_INS}]")

# Perl removes U+001C to U+001F as control characters; to Python, they are spaces.
PERL_CONTROLS = dict.fromkeys(range(0x1C, 0x20))


def tokenize(line: str, lang: str, aggressive_hyphens: bool) -> str:
    """Return the line that tokenizer.perl writes.

    Args:
        lang: A two-letter code, as in `tokenizer.perl -l`.
        aggressive_hyphens: Also split at hyphens, as in `tokenizer.perl -a`.

    Returns:
        The tokens, with entities for & < > | ' " [ ], separated by one space. If the line ends in
        `.'`, the script may leave a space at its end, and two before the full stop.
    """
    line = line.translate(PERL_CONTROLS)
    if line.isspace():
        return line  # the script copies blank lines
    moses = _moses_tokenizer(lang)
    has_slow = not line.isascii() and ord(max(line)) >= FAST_CODE_POINTS
    if has_slow:
        # The tokenizer adds spaces around these characters, and keeps them in their order.
        replaced = iter(_REPLACED.findall(line))
        line = _REPLACED.sub(lambda match: _stand_in(match[0]), line)
    tokens: str = moses.tokenize(line, aggressive_hyphens, return_str=True)
    if has_slow:
        tokens = _STAND_IN.sub(lambda _: next(replaced), tokens)
    return tokens


@cache
def _stand_in(character: str) -> str:
    """Return the stand-in that the rules treat like a character."""
    return _stand_ins()[_kind(character)]


@cache
def _stand_ins() -> dict[tuple[bool, ...], str]:
    """Return the stand-ins by their kind."""
    return {_kind(stand_in): stand_in for stand_in in STAND_INS}


def _kind(character: str) -> tuple[bool, ...]:
    """Return everything that the rules distinguish in a character."""
    kind = [character.islower()]
    for members in _perl_classes(ALL_CODE_POINTS):
        kind.append(re.match(f"[{members}]", character) is not None)
    return tuple(kind)


@cache
def _moses_tokenizer(lang: str) -> Any:
    """Return a tokenizer of sacremoses with the rules of the script.

    It knows the classes of characters below FAST_CODE_POINTS only.

    Args:
        lang: A two-letter code.
    """
    moses = MosesTokenizer(lang)

    # Prefixes after which a full stop does not end a sentence.
    prefixes = frozenset(moses.NONBREAKING_PREFIXES)
    moses.NONBREAKING_PREFIXES = prefixes.difference(NEWER_PREFIXES.get(lang, "").split())
    if lang == "is":  # it lists "no" with and then without #NUMERIC_ONLY#, and the last one counts
        moses.NUMERIC_ONLY_PREFIXES = [
            prefix for prefix in moses.NUMERIC_ONLY_PREFIXES if prefix != "no"
        ]
    if lang == "ga":  # its apostrophes follow the rules of French
        moses.lang = "fr"

    # Perl's letters and digits.
    classes = _perl_classes(FAST_CODE_POINTS)
    for name in CLASS_RULES:
        setattr(moses, name, classes.substitute(getattr(MosesTokenizer, name)))
    if moses.lang in APOSTROPHE_RULES:
        name = APOSTROPHE_RULES[moses.lang]
        rules = [classes.substitute(rule) for rule in getattr(MosesTokenizer, name)]
        setattr(moses, name, rules)
    moses.islower = str.islower  # sacremoses calls it only with single characters
    moses.isanyalpha = re.compile(f"[{classes.letters}]").search
    moses.replace_multidots = partial(_mark_dots, moses.replace_multidots)
    return moses


def _mark_dots(mark_dots: Callable[[str], str], text: str) -> str:
    """Replace runs of full stops by markers, as the script does.

    Args:
        mark_dots: The method of sacremoses. It takes linear time, unlike the loop of the script,
            but is wrong for a text with a marker of its own.
    """
    if "DOTMULTI" not in text:
        return mark_dots(text)
    # The loop of the script, step by step: a marker takes one more full stop in each round.
    text = re.sub(r"\.(\.+)", r" DOTMULTI\1", text)
    while "DOTMULTI." in text:
        text = re.sub(r"DOTMULTI\.([^.])", r"DOTDOTMULTI \1", text)
        text = text.replace("DOTMULTI.", "DOTDOTMULTI")
    return text


class _PerlClasses(NamedTuple):
    """Character classes of Perl, as they stand between the brackets of a regular expression."""

    letters: str  # IsAlpha
    letters_and_digits: str  # IsAlnum
    numbers: str  # IsN: digits, and others such as "²" and "Ⅷ"

    def substitute(self, rule: tuple[re.Pattern[str], str]) -> tuple[re.Pattern[str], str]:
        """Return a rule of sacremoses with these classes instead of its own."""
        compiled, replacement = rule
        pattern = compiled.pattern
        pattern = pattern.replace(MosesTokenizer.IsAlnum, self.letters_and_digits)
        pattern = pattern.replace(MosesTokenizer.IsAlpha, self.letters)
        pattern = pattern.replace(MosesTokenizer.IsN, self.numbers)
        return re.compile(pattern), replacement


@cache
def _perl_classes(n_code_points: int) -> _PerlClasses:
    """Return the character classes of tokenizer.perl.

    Args:
        n_code_points: The code points of the text are below this number.
    """
    characters = "".join(map(chr, range(n_code_points)))
    numbers = ""
    numerals = ""  # such as "Ⅷ", a letter to Perl
    for character in characters:
        if not character.isnumeric():
            continue
        category = unicodedata.category(character)
        if category[0] == "N":
            numbers += character
        if category == "Nl":
            numerals += character

    # Ranges of Python's letters, then the marks in the lists of sacremoses, then those of Perl.
    # The viramas and nuktas that sacremoses adds to these lists are not letters to Perl.
    letters = ""
    others = characters.translate(dict.fromkeys(map(ord, numbers), " "))
    for run in re.findall(r"[^\W_]+", others):
        letters += f"{run[0]}-{run[-1]}"
    marks = {character for character in Perluniprops().chars("IsAlpha") if not character.isalpha()}
    letters += "".join(marks - set(numbers) - set(NOT_LETTERS))
    for span in MORE_LETTERS.split():
        first, _, last = span.partition("-")
        first_code = int(first, 16)
        last_code = int(last or first, 16)
        if last_code < n_code_points:
            letters += f"{chr(first_code)}-{chr(last_code)}"
    return _PerlClasses(letters + numerals, rf"{letters}{numerals}\d", numbers)
