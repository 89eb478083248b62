"""The Moses text tools of the WMT data: raw line to tokens and back, as the Perl scripts do it.

The tokenizer and detokenizer are sacremoses's, which follow the scripts of December 2017 (Moses
3a0631a, the paper's time) except that they part Han, kana, Hangul and some Indic signs from the
letters beside them. The two punctuation tools are tables that follow the scripts of 2023 (Moses
3445289); sacremoses's normalizer departs from those in one German or French line of 30.
"""

# ruff: noqa: RUF001, RUF002, RUF003 - look-alike signs are what this file is about

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sacremoses import MosesDetokenizer

from nmtkit.corpus.moses_tokenizer import moses_tokenizer


@dataclass(frozen=True)
class Tokenization:
    """How the raw lines of one language become tokens.

    Args:
        lang: two letters, as in `tokenizer.perl -l`
        normalize_punctuation: run normalize-punctuation.perl first
        lowercase: then lower-case
        tokenizer: then "moses", tokenizer.perl, or "none", which only squeezes spaces
        aggressive_hyphens: tokenizer.perl's `-a`, "well-known" to "well @-@ known"
    """

    lang: str
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: Literal["moses", "none"]
    aggressive_hyphens: bool

    def tokenize(self, line: str) -> str:
        """Turn a raw line into tokens with one space between; & < > | ' " [ ] become entities.

        The stray space that tokenizer.perl leaves at the end of a line ending in `.'` is dropped.
        """
        if self.normalize_punctuation:
            line = normalize_punctuation(line, self.lang)
        if self.lowercase:
            line = line.lower()
        if self.tokenizer == "moses":
            return moses_tokenizer(self.lang, self.aggressive_hyphens)(line)
        return " ".join(line.split())

    def detokenize(self, tokens: str) -> str:
        """Turn tokens into text as detokenizer.perl does; entities and "@-@" are undone."""
        if self.tokenizer == "none":
            return tokens
        text: str = _detokenizer(self.lang).detokenize(tokens.split())
        return text


@cache
def _detokenizer(lang: str) -> Any:
    return MosesDetokenizer(lang)


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
    """Write curly quotes, the ellipsis and full-width signs in ASCII, but not „ and –.

    As replace-unicode-punctuation.perl does.
    """
    return _FULL_STOP.sub(". ", line).translate(_UNICODE_PUNCTUATION)


def normalize_punctuation(line: str, lang: str) -> str:
    """Write quotes, dashes and the spaces around punctuation in one way.

    As normalize-punctuation.perl does: a space that a final parenthesis gets stays.
    """
    for pattern, replacement in _punctuation_rules(lang, line.isascii()):
        line = pattern.sub(replacement, line)
    return line


# In the script's order, less the rules that earlier ones leave nothing to do. Where two matches
# share a character, as in "l’a’b", only the first counts: so no look-ahead in place of a group.
# "  +" is the script's " +" without its idle matches, a third to half of the time.
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
# The script means to spare a final `."`, but its [^<] takes the line's end for a character.
_EUROPEAN_QUOTE_RULES = ((',"', '",'), (r'(\.+)"(\s*[^<]|\Z)', r'"\1\2'))
_DECIMAL_COMMA = ("de", "es", "cz", "cs", "fr")


@cache
def _punctuation_rules(lang: str, ascii_only: bool) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the rules of a language, less those that no ASCII line matches if `ascii_only`."""
    rules = list(_COMMON_RULES)
    if lang == "en":
        rules += _ENGLISH_QUOTE_RULES
    elif lang not in ("cs", "cz"):
        rules += _EUROPEAN_QUOTE_RULES
    rules.append(("(\\d)\u00a0(\\d)", r"\1,\2" if lang in _DECIMAL_COMMA else r"\1.\2"))
    # The script reads bytes: its \d and \s are those of ASCII.
    return tuple(
        (re.compile(pattern, re.ASCII), replacement)
        for pattern, replacement in rules
        if pattern.isascii() or not ascii_only
    )
