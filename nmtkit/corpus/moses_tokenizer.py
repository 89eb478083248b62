"""tokenizer.perl as sacremoses has it, several times faster: a word is tokenized once, not always.

A word is what stands between two spaces. What becomes of it, sacremoses alone says; this file says
what may be remembered. Nearly all rules act inside a word; the others leave these cases:

- The rules for commas and apostrophes look at one character on either side. At a line's ends there
  is none, and of two apostrophes around one space the first may use it up. Such lines go to
  sacremoses whole. So do those with control characters, which go and may leave two spaces, and
  those with the name that runs of dots bear meanwhile. (`.'` at a line's end has its own rule.)
- A full stop at a word's end looks at the next word's first character, which no rule changes: is
  it a lower-case letter, one of 0 to 9, or neither?

A new word is mostly an old one with other letters, as "house," and "tree,", or other digits. Two
letters or more matter one by one only as a non-breaking prefix before a full stop and, in English,
in "'s" after a numeral; one may stand between two apostrophes, where it matters that it is alone.
Of two digits or more, the same is true. So the tokens of a word's shape, with one pair of letters
or digits in place of all such, serve all words of that shape.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from sacremoses import MosesTokenizer

# Full, the memory of a language takes tens of MB; then it starts anew.
_MAX_WORDS = 2**18
_MAX_SHAPES = 2**14
_MAX_CHARACTERS = 64  # longer words are not remembered

# In no entity, and in no list of prefixes.
_LETTERS, _DIGITS = "QQ", "00"

_CONTROL = re.compile("[\0-\x08\x0e-\x1f]")
# Perl takes U+001C to U+001F for control characters, which go; Python takes them for spaces.
_PERL_CONTROLS = dict.fromkeys(range(0x1C, 0x20))


@cache
def moses_tokenizer(lang: str, aggressive_hyphens: bool) -> Callable[[str], str]:
    """Load a language's tokenizer, which turns a raw line into tokens with one space between."""
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
            line = line.translate(_PERL_CONTROLS)
            return " ".join(moses.tokenize(line, aggressive_dash_splits=aggressive_hyphens))
        if ". " in squeezed:
            for i, following in enumerate(words[1:]):
                if words[i][-1] == ".":
                    words[i] += full_stop_minds.get(following[0], "")
        return " ".join(map(tokens_of, words))

    return tokenize


def _sacremoses(lang: str) -> Any:
    """Load sacremoses's tokenizer, the same but for speed."""
    moses = MosesTokenizer(lang)
    # The same tests, on sets that are built once and not once a word.
    lower, alpha = frozenset(moses.IsLower), frozenset(moses.IsAlpha)
    moses.islower = lower.issuperset
    moses.isanyalpha = lambda text: not alpha.isdisjoint(text)
    moses.NONBREAKING_PREFIXES = frozenset(moses.NONBREAKING_PREFIXES)
    return moses


class _Words(dict[str, str]):
    """The tokens of each word, worked out when first asked for.

    A key is a word, with " x" or " 0" after it if it ends in a full stop that minds what follows.
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
        """Fill in the template of the word's shape, or ask if each letter or digit may matter."""
        pieces = self._run.split(word)  # every second one is a run of letters or of digits
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
        """Tokenize a word with sacremoses as it stands amid a line."""
        line = f"X {word}" if " " in word else f"X {word} X"
        tokens: str = self._moses.tokenize(
            line, aggressive_dash_splits=self._aggressive_hyphens, return_str=True
        )
        return tokens[2:-2]
