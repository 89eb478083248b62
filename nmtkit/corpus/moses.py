"""The Moses text tools of the WMT data: from raw lines to tokens and back, as the Perl scripts do.

The tokenizer is that of sacremoses with the prefixes of tokenizer.perl (Moses 3a0631a of December
2017; the script itself is of 2016) and with Perl's letters and digits, those of Python's version of
Unicode. All tokens equal the script's, except for these:

- Viramas and nuktas (Indic scripts, Burmese) stay in their words, in whatever language; the script
  separates them.
- For Estonian, Tamil, Tetum and other languages of India, the lists of prefixes are newer.

The two punctuation tools are tables that follow the scripts as they have been since 2019 (Moses
3445289); the normalizer of sacremoses differs from them in one German or French line of 30.
"""

# ruff: noqa: RUF001, RUF002, RUF003 - look-alike characters are what this file is about

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from nmtkit.corpus.linearized import linearize
from nmtkit.corpus.moses_detokenizer import detokenize
from nmtkit.corpus.moses_tokenizer import tokenize


@dataclass(frozen=True)
class Tokenization:
    """How the raw lines of one language become tokens.

    Args:
        lang: two letters, as in `tokenizer.perl -l`.
        normalize_punctuation: run normalize-punctuation.perl first.
        lowercase: then convert to lower case.
        tokenizer: then apply "moses", tokenizer.perl, or "none", which only collapses spaces. The
            target of a parser has "tags" or "xx": a tree becomes its linearization.
        aggressive_hyphens: `-a` of tokenizer.perl, which turns "well-known" into "well @-@ known".
    """

    lang: str
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: Literal["moses", "none", "tags", "xx"]
    aggressive_hyphens: bool

    @property
    def is_of_trees(self) -> bool:
        """Return whether the raw lines are trees."""
        return self.tokenizer in ("tags", "xx")

    def tokenize(self, line: str) -> str:
        """Turn a raw line into tokens separated by one space; & < > | ' " [ ] become entities.

        The stray space that tokenizer.perl leaves at the end of a line ending in `.'` is removed.
        """
        if self.tokenizer in ("tags", "xx"):
            return linearize(line, self.tokenizer)
        if self.normalize_punctuation:
            line = normalize_punctuation(line, self.lang)
        if self.lowercase:
            line = line.lower()
        if self.tokenizer == "moses":
            return tokenize(line, self.lang, self.aggressive_hyphens)
        return " ".join(line.split())

    def detokenize(self, tokens: str) -> str:
        """Turn tokens into text as detokenizer.perl does; entities and "@-@" are reverted.

        Trees stay linearized: `corpus.linearized.read_back` makes a tree of them and its words.
        """
        if self.tokenizer != "moses":
            return tokens
        return detokenize(tokens, self.lang)


_UNICODE_PUNCTUATION = str.maketrans(
    {
        **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
        **dict(zip("，、∶：；？！（）【】〈〉％～━’", ",,::;?!()[]<>%~-'", strict=True)),
        **dict.fromkeys("“”「」《》", '"'),
        "…": "...",
    }
)
_FULL_STOP = re.compile("[。．] *")


def replace_unicode_punctuation(line: str) -> str:
    """Replace curly quotes, the ellipsis and full-width characters by ASCII, but not „ and –.

    It does what replace-unicode-punctuation.perl does.
    """
    return _FULL_STOP.sub(". ", line).translate(_UNICODE_PUNCTUATION)


def normalize_punctuation(line: str, lang: str) -> str:
    """Unify quotes, dashes and the spaces around punctuation.

    It does what normalize-punctuation.perl does: the space that it adds after a final parenthesis
    stays.
    """
    for pattern, replacement in _punctuation_rules(lang):
        line = pattern.sub(replacement, line)
    return line


# In the order of the script, without the rules that earlier ones make superfluous. If two matches
# share a character, as in "l’a’b", only the first counts: a look-ahead in place of a group would be
# wrong. "  +" is the script's " +" without the matches that change nothing.
_COMMON_RULES = (
    ("\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    ("  +", " "),
    (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("),
    (r" \)", ")"),
    (r"(\d) %", r"\1%"),
    (" ([:;])", r"\1"),
    ("`", "'"),
    ("''", ' " '),
    ("[„“”]", '"'),
    ("–", "-"),
    ("—", " - "),
    ("  +", " "),
    ("´", "'"),
    ("([a-zA-Z])’([a-zA-Z])", r"\1'\2"),
    ("[‘‚]", "'"),
    ("’", '"'),
    ("''", '"'),
    ("…", "..."),
    ("\u00a0«\u00a0", ' "'),
    ("«\u00a0?", '"'),
    ("\u00a0»\u00a0", '" '),
    ("\u00a0?»", '"'),
    ("\u00a0%", "%"),
    ("nº\u00a0", "nº "),
    ("\u00a0([:?!;])", r"\1"),
    ("\u00a0(ºC|cm)", r" \1"),
    (",\u00a0", ", "),
    ("  +", " "),
)
_ENGLISH_QUOTE_RULES = (('"([,.]+)', r'\1"'),)
# The script intends to keep a final `."`, but its [^<] matches the end of the line.
_EUROPEAN_QUOTE_RULES = ((',"', '",'), (r'(\.+)"(\s*[^<]|\Z)', r'"\1\2'))
_DECIMAL_COMMA = ("de", "es", "cz", "cs", "fr")


@cache
def _punctuation_rules(lang: str) -> list[tuple[re.Pattern[str], str]]:
    rules = list(_COMMON_RULES)
    if lang == "en":
        rules += _ENGLISH_QUOTE_RULES
    elif lang not in ("cs", "cz"):
        rules += _EUROPEAN_QUOTE_RULES
    rules.append(("(\\d)\u00a0(\\d)", r"\1,\2" if lang in _DECIMAL_COMMA else r"\1.\2"))
    # The script reads bytes, so its \d and \s match only ASCII.
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]
