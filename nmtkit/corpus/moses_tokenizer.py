"""tokenizer.perl as sacremoses implements it, several times faster: each word is tokenized once.

A word is the text between two spaces. Only sacremoses decides its tokens, with the prefixes and the
apostrophes of 2017; this file decides which of them may be cached. Nearly all rules act inside a
word; the others leave these cases:

- The rules for commas and apostrophes look at one character on either side. At the ends of a line
  there is none, and the first of two apostrophes around a space may consume it. Such lines go to
  sacremoses as a whole. So do lines with control characters, whose removal may leave two spaces,
  and lines with the placeholder that sacremoses uses for runs of dots. (`.'` at the end of a line
  has a rule of its own.)
- The rule for a full stop at the end of a word looks at the first character of the next word, which
  no rule changes: is it a lower-case letter, one of 0 to 9, or neither?

A new word is mostly an old one with other letters, such as "house," and "tree,", or other digits.
In a run of two or more letters, the individual letters matter only in a non-breaking prefix before
a full stop and, in English, in "'s" after a numeral; a single letter may be between two
apostrophes, where its being single matters. The same is true of digits. So all words of one shape,
in which each run of letters or digits is replaced by one fixed pair, share the tokens of the shape.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from sacremoses import MosesTokenizer

# A full cache of one language takes tens of MB; then it is cleared.
_MAX_WORDS = 2**18
_MAX_SHAPES = 2**14
_MAX_CHARACTERS = 64  # longer words are not cached

# They occur in no entity and in no list of prefixes.
_LETTERS, _DIGITS = "QQ", "00"

# Prefixes of sacremoses that the script of 2017 does not have. Those of Spanish, Italian, Dutch and
# Slovak are in its lists, but with a space behind them that no word has; the others are newer.
_NOT_IN_2017 = {
    "en": "Rs",
    "es": "Fil gr pÃ¡g",
    "it": "Amn Arch all es",
    "nl": "Nrs",
    "sk": "Pf",
    "sv": "adv apr aug d dec f feb fil jan jul jun jur kand lic mag mar mha nov okt prop s sep vol "
    "Ä Å Ö",
}

_CONTROL = re.compile("[\0-\x08\x0e-\x1f]")
# To Perl, U+001C to U+001F are control characters, which it removes; to Python, they are spaces.
_PERL_CONTROLS = dict.fromkeys(range(0x1C, 0x20))


@cache
def moses_tokenizer(lang: str, aggressive_hyphens: bool) -> Callable[[str], str]:
    """Load the tokenizer of a language: it turns a raw line into tokens separated by one space."""
    moses = _sacremoses(lang)
    tokens_of = _Words(moses, aggressive_hyphens).__getitem__
    full_stop_minds = dict.fromkeys(moses.IsLower, " x") | dict.fromkeys("0123456789", " 0")

    def tokenize(line: str) -> str:
        words = line.split()
        squeezed = " ".join(words)
        if (
            squeezed.startswith(("'", ","))
            or squeezed.endswith(("'", ","))
            or "' '" in squeezed
            or "DOTMULTI" in squeezed
            or (not line.isprintable() and _CONTROL.search(line))
        ):
            return " ".join(_whole_line(moses, line, aggressive_hyphens))
        if ". " in squeezed:
            for i, following in enumerate(words[1:]):
                if words[i][-1] == ".":
                    words[i] += full_stop_minds.get(following[0], "")
        return " ".join(map(tokens_of, words))

    return tokenize


def plain_moses(lang: str, aggressive_hyphens: bool = False) -> Callable[[str], list[str]]:
    """Load sacremoses with the prefixes and rules of 2017 and no shortcut, for comparisons."""
    moses = _corrected(lang)
    return lambda line: _whole_line(moses, line, aggressive_hyphens)


def _whole_line(moses: Any, line: str, aggressive_hyphens: bool) -> list[str]:
    line = line.translate(_PERL_CONTROLS)
    tokens: list[str] = moses.tokenize(line, aggressive_dash_splits=aggressive_hyphens)
    return tokens


def _sacremoses(lang: str) -> Any:
    """Load the tokenizer of sacremoses, corrected and faster."""
    moses = _corrected(lang)
    # The same tests, on sets that are built once instead of once per word.
    lower, alpha = frozenset(moses.IsLower), frozenset(moses.IsAlpha)
    moses.islower = lower.issuperset
    moses.isanyalpha = lambda text: not alpha.isdisjoint(text)
    moses.NONBREAKING_PREFIXES = frozenset(moses.NONBREAKING_PREFIXES)
    return moses


def _corrected(lang: str) -> Any:
    """Load the tokenizer of sacremoses with the prefixes and rules of the script of 2017."""
    moses = MosesTokenizer(lang)
    newer = _NOT_IN_2017.get(lang, "").split()
    moses.NONBREAKING_PREFIXES = [p for p in moses.NONBREAKING_PREFIXES if p not in newer]
    if lang == "is":  # it lists "no" with and then without #NUMERIC_ONLY#, and the last one counts
        moses.NUMERIC_ONLY_PREFIXES = [p for p in moses.NUMERIC_ONLY_PREFIXES if p != "no"]
    if lang == "ga":  # its apostrophes follow the rules of French
        moses.lang = "fr"
    return moses


class _Words(dict[str, str]):
    """The tokens of each word, computed on first use.

    A key is a word, followed by " x" or " 0" if it ends in a full stop and the next word starts
    with a lower-case letter or a digit.
    """

    def __init__(self, moses: Any, aggressive_hyphens: bool) -> None:
        self._moses = moses
        self._aggressive_hyphens = aggressive_hyphens
        self._template = lru_cache(_MAX_SHAPES)(self._make_template)
        self._letters = frozenset(moses.IsAlpha) - frozenset(moses.IsN)
        letter = re.escape("".join(sorted(self._letters)))
        self._run = re.compile(f"([{letter}]{{2,}}|[0-9]{{2,}})")
        self._s_after_numeral = re.compile(f"[^{letter}]'s")
        self._prefix_runs = frozenset(self._run.findall(" ".join(moses.NONBREAKING_PREFIXES)))

    def __missing__(self, word: str) -> str:
        if len(word) > _MAX_CHARACTERS:
            return self._ask(word)
        if len(self) >= _MAX_WORDS:
            self.clear()
        plain = word.isalpha() and (word.isascii() or self._letters.issuperset(word))
        tokens = self[word] = word if plain else self._tokenize(word)
        return tokens

    def _tokenize(self, word: str) -> str:
        """Fill in the template of the word's shape, or ask if single letters may matter."""
        pieces = self._run.split(word)  # every second piece is a run of letters or of digits
        runs = pieces[1::2]
        if "." in word and not self._prefix_runs.isdisjoint(runs):
            return self._ask(word)
        if "'s" in word and self._s_after_numeral.search(word):
            return self._ask(word)
        pieces[1::2] = [_DIGITS if run[0] <= "9" else _LETTERS for run in runs]
        return self._template("".join(pieces)) % tuple(runs)

    def _make_template(self, shape: str) -> str:
        tokens = self._ask(shape).replace("%", "%%")
        return tokens.replace(_LETTERS, "%s").replace(_DIGITS, "%s")

    def _ask(self, word: str) -> str:
        """Tokenize a word with sacremoses, as in the middle of a line."""
        line = f"X {word}" if " " in word else f"X {word} X"
        tokens: str = self._moses.tokenize(
            line, aggressive_dash_splits=self._aggressive_hyphens, return_str=True
        )
        return tokens[2:-2]
