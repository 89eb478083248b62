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

import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from nmtkit.corpus.linearized import linearize
from nmtkit.corpus.moses_detokenizer import detokenize
from nmtkit.corpus.moses_tokenizer import TABLES, tokenize
from nmtkit.store.artifacts import Artifact
from nmtkit.store.files import Record, read_record, write_json

TOKENIZATION = "tokenization.json"  # in the prepared corpus and in each bundle


@dataclass(frozen=True)
class Tokenization:
    lang: str  # two letters, as in `tokenizer.perl -l`
    normalize_punctuation: bool  # by normalize-punctuation.perl
    lowercase: bool
    # tokenizer.perl, or only collapse spaces; or a tree becomes its linearization, for a parser
    tokenizer: Literal["moses", "none", "tags", "xx"]
    aggressive_hyphens: bool  # `-a` of tokenizer.perl: "well-known" becomes "well @-@ known"

    @property
    def is_of_trees(self) -> bool:
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
        return detokenize(tokens, self.lang) if self.tokenizer == "moses" else tokens


class Tokenizations(Record):
    src: Tokenization
    tgt: Tokenization

    def save(self, directory: Path) -> None:
        write_json(directory / TOKENIZATION, {"src": asdict(self.src), "tgt": asdict(self.tgt)})

    @classmethod
    def load(cls, artifact: Artifact) -> "Tokenizations":
        return read_record(artifact.file(TOKENIZATION), cls)


_UNICODE_PUNCTUATION = str.maketrans(TABLES["unicode_punctuation"])
_FULL_STOP = re.compile("[。．] *")


def replace_unicode_punctuation(line: str) -> str:
    """Replace what replace-unicode-punctuation.perl does by ASCII: “ and …, but not „ and –."""
    return _FULL_STOP.sub(". ", line).translate(_UNICODE_PUNCTUATION)


def normalize_punctuation(line: str, lang: str) -> str:
    """Do what normalize-punctuation.perl does; its space after a final parenthesis stays."""
    for pattern, replacement in _punctuation_rules(lang):
        line = pattern.sub(replacement, line)
    return line


_DECIMAL_COMMA = ("de", "es", "cz", "cs", "fr")


@cache
def _punctuation_rules(lang: str) -> list[tuple[re.Pattern[str], str]]:
    table = TABLES["punctuation"]
    rules = [*table["common"]]
    if lang == "en":
        rules += table["english_quotes"]
    elif lang not in ("cs", "cz"):
        rules += table["european_quotes"]
    rules.append(("(\\d)\u00a0(\\d)", r"\1,\2" if lang in _DECIMAL_COMMA else r"\1.\2"))
    # The script reads bytes, so its \d and \s match only ASCII.
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]
