"""Tokenization and detokenization as the Moses scripts do it, and its settings in a corpus.

The tokenizer is that of sacremoses with the prefixes of tokenizer.perl (Moses 3a0631a of December
2017; the script itself is of 2016) and with Perl's letters and digits, those of Unicode 14. Its
output equals the script's, except that the lists of prefixes are newer for Estonian, Tetum and the
languages of India.
"""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from nmtkit.corpus.linearized import linearize
from nmtkit.corpus.moses_detokenizer import detokenize
from nmtkit.corpus.moses_punctuation import normalize_punctuation
from nmtkit.corpus.sentencepiece_subword import SOURCE_MODEL
from nmtkit.corpus.vocabulary import split_tag
from nmtkit.store.artifacts import Artifact
from nmtkit.store.records import Record, read_record, write_json

TOKENIZATION = "tokenization.json"  # in a prepared corpus and in a bundle


@dataclass(frozen=True)
class Tokenization:
    """The preprocessing of one side of a corpus, and its reversal."""

    lang: str  # two letters, as in `tokenizer.perl -l`
    normalize_punctuation: bool  # by normalize-punctuation.perl
    lowercase: Literal[False, True, "tokens"]  # "tokens": after the tokenizer, by lowercase.perl
    # tokenizer.perl, or only collapse spaces; or a tree becomes its linearization, for a parser
    tokenizer: Literal["moses", "none", "tags", "xx"]
    aggressive_hyphens: bool  # `-a` of tokenizer.perl: "well-known" becomes "well @-@ known"
    # Leave a language tag at the beginning of a line as it is. This follows from the vocabulary.
    keeps_tag: bool = field(default=False, compare=False)

    @property
    def has_trees(self) -> bool:
        """Whether lines are parse trees."""
        return self.tokenizer in ("tags", "xx")

    def tokenize(self, line: str) -> str:
        """Turn a raw line into tokens separated by one space; & < > | ' " [ ] become entities."""
        return " ".join(self.script_output(line).split())

    def script_output(self, line: str) -> str:
        """Return the tokens with the spaces that the script writes.

        tokenizer.perl may leave a space at the end of a line that ends in `.'`. No subword depends
        on it, but the bytes of a file of tokens or subwords do.
        """
        if self.tokenizer in ("tags", "xx"):
            return linearize(line, self.tokenizer)
        tag, line = split_tag(line) if self.keeps_tag else ("", line)
        if self.normalize_punctuation:
            line = normalize_punctuation(line, self.lang)
        if self.lowercase is True:
            line = line.lower()
        if self.tokenizer == "moses":
            # Importing sacremoses is slow, and most models of users' own text need no tokens.
            from nmtkit.corpus.moses_tokenizer import tokenize

            tokens = tokenize(line, self.lang, self.aggressive_hyphens)
        else:
            tokens = " ".join(line.split())
        if self.lowercase == "tokens":
            # Perl lower-cases each letter for itself, but Python a sigma by its place in the word.
            tokens = tokens.replace("\u03a3", "\u03c3").lower()
        return f"{tag} {tokens}" if tag else tokens

    def detokenize(self, tokens: str) -> str:
        """Turn tokens into text like detokenizer.perl; entities and "@-@" are reverted.

        Trees stay linearized: `corpus.linearized.read_back` turns them into a tree and its words.
        """
        return detokenize(tokens, self.lang) if self.tokenizer == "moses" else tokens


class Tokenizations(Record):
    """The tokenization of both sides: the contents of tokenization.json."""

    src: Tokenization
    tgt: Tokenization

    def save(self, directory: Path) -> None:
        """Write tokenization.json into a folder."""
        sides = {"src": asdict(self.src), "tgt": asdict(self.tgt)}
        for side in sides.values():
            del side["keeps_tag"]
        write_json(directory / TOKENIZATION, sides)

    @classmethod
    def load(cls, artifact: Artifact) -> "Tokenizations":
        """Read tokenization.json of a prepared corpus or a bundle."""
        tokenizations = read_record(artifact.file(TOKENIZATION), cls)
        # Only models of Marian have language tags.
        src = replace(tokenizations.src, keeps_tag=SOURCE_MODEL in artifact.manifest.files)
        return cls(src=src, tgt=tokenizations.tgt)
