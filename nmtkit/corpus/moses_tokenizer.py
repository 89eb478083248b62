"""tokenizer.perl by sacremoses, with the prefixes and apostrophes of 2017 and Perl's classes."""

import re
import unicodedata
from functools import cache
from typing import Any, NamedTuple

from sacremoses import MosesTokenizer

from nmtkit.tables import read_tables

TABLES: dict[str, Any] = read_tables(__file__, "moses.toml")
_COMMAS = ("COMMA_SEPARATE_1", "COMMA_SEPARATE_2", "COMMA_SEPARATE_3")
_RULES_WITH_CLASSES = ("PAD_NOT_ISALNUM", "AGGRESSIVE_HYPHEN_SPLIT", *_COMMAS)
_APOSTROPHES = ("ENGLISH_SPECIFIC_APOSTROPHE", "FR_IT_SPECIFIC_APOSTROPHE")

# Letters and digits are below the first number. Most text is below the second: with fewer ranges, a
# class of a regular expression is much faster.
_WIDE, _NARROW = 0x40000, 0x10000

# To Perl, U+001C to U+001F are control characters, which it removes; to Python, they are spaces.
_PERL_CONTROLS = dict.fromkeys(range(0x1C, 0x20))


def tokenize(line: str, lang: str, aggressive_hyphens: bool) -> str:
    line = line.translate(_PERL_CONTROLS)
    is_narrow = line.isascii() or ord(max(line)) < _NARROW
    moses = _moses(lang, _NARROW if is_narrow else _WIDE)
    return " ".join(moses.tokenize(line, aggressive_dash_splits=aggressive_hyphens))


@cache
def _moses(lang: str, n_code_points: int) -> Any:
    moses = MosesTokenizer(lang)
    newer = TABLES["not_in_2017"].get(lang, "").split()
    moses.NONBREAKING_PREFIXES = frozenset(moses.NONBREAKING_PREFIXES).difference(newer)
    if lang == "is":  # it lists "no" with and then without #NUMERIC_ONLY#, and the last one counts
        moses.NUMERIC_ONLY_PREFIXES = [p for p in moses.NUMERIC_ONLY_PREFIXES if p != "no"]
    if lang == "ga":  # its apostrophes follow the rules of French
        moses.lang = "fr"
    classes = _perls_classes(n_code_points)
    for name in _RULES_WITH_CLASSES:
        setattr(moses, name, classes.put_in(getattr(MosesTokenizer, name)))
    for name in _APOSTROPHES:
        setattr(moses, name, [classes.put_in(rule) for rule in getattr(MosesTokenizer, name)])
    moses.islower = str.islower  # it is asked about single characters
    moses.isanyalpha = re.compile(f"[{classes.letters}]").search
    return moses


class _Classes(NamedTuple):
    letters: str  # IsAlpha
    letters_and_digits: str  # IsAlnum
    numbers: str  # IsN, which has "²" and "Ⅷ" besides digits

    def put_in(self, rule: tuple[re.Pattern[str], str]) -> tuple[re.Pattern[str], str]:
        """Return a rule of sacremoses with these classes in place of its own."""
        pattern, replacement = rule[0].pattern, rule[1]
        pattern = pattern.replace(MosesTokenizer.IsAlnum, self.letters_and_digits)
        pattern = pattern.replace(MosesTokenizer.IsAlpha, self.letters)
        return re.compile(pattern.replace(MosesTokenizer.IsN, self.numbers)), replacement


@cache
def _perls_classes(n_code_points: int) -> _Classes:
    """Return the character classes of tokenizer.perl, and viramas and nuktas among the letters."""
    characters = "".join(map(chr, range(n_code_points)))
    category_of = {c: unicodedata.category(c) for c in filter(str.isnumeric, characters)}
    numbers = "".join(c for c, category in category_of.items() if category[0] == "N")
    numerals = "".join(c for c in numbers if category_of[c] == "Nl")
    others = characters.translate(dict.fromkeys(map(ord, numbers), " "))
    letters = "".join(f"{run[0]}-{run[-1]}" for run in re.findall(r"[^\W_]+", others))
    marks = {c for c in MosesTokenizer.IsAlpha if not c.isalpha()}
    letters += "".join(marks - {*numbers, *TABLES["no_letters"]})
    for span in TABLES["more_letters"].split():
        first, last = chr(int(span.split("-")[0], 16)), chr(int(span.split("-")[-1], 16))
        if ord(last) < n_code_points:
            letters += f"{first}-{last}"
    return _Classes(letters + numerals, rf"{letters}{numerals}\d", numbers)
