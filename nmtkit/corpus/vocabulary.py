"""The base class of subword models, and their vocabularies: the ids of pieces, and the file.

A vocabulary of a multilingual model has tags of target languages, such as ">>deu<<", that stand in
front of a source line.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.store.records import read_utf8, write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

VOCABULARY = "vocabulary.tsv"
MAX_FILE_BYTES = 2**23  # of a vocabulary or a model; 37,000 pieces take 400 to 800 kB
MAX_DIGITS = 18  # of a count
# As in the vocabularies of OPUS-MT: >>deu<<, >>sr_Latn<<, >>pt_BR<<, >>ca@valencia<<. Other text
# between these marks is a quotation.
_TAG = re.compile(r"\s*(>>[A-Za-z]{2,3}(?:[-_@][A-Za-z0-9]{1,8})*<<)")


class SubwordModel(ABC):
    """The common part of subword models: their pieces, by ids."""

    _pieces: list[str]

    @property
    def protected(self) -> list[str]:
        """Strings that are always one piece each."""
        return []

    @abstractmethod
    def encode(self, tokens: str) -> list[int]:
        """Return the ids of a source text, without an end symbol."""

    def encode_target(self, tokens: str) -> list[int]:
        """Return the ids of a target text, without an end symbol."""
        return self.encode(tokens)

    @property
    def tags(self) -> list[str]:
        """The language tags of the vocabulary, such as ">>deu<<"."""
        return []

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a source text into a language tag (empty if it has none) and the rest."""
        return "", text

    @property
    def n_tokens(self) -> int:
        """The size of the vocabulary, with special symbols but without padding rows."""
        return len(self._pieces)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of ids, with their marks of continuation or of spaces."""
        return [self._pieces[id_] for id_ in ids]


def piece_ids(pieces: Mapping[str, int]) -> dict[str, int]:
    """Return the ids of pieces. They follow those of the special symbols."""
    return {piece: id_ for id_, piece in enumerate(pieces, start=len(SPECIALS))}


def write_vocabulary(directory: Path, counts: Mapping[str, int]) -> Path:
    """Write pieces and their counts in the order of their ids, special symbols first."""
    path = directory / VOCABULARY
    lines = [f"{special}\t0" for special in SPECIALS]
    for piece, count in counts.items():  # a piece "<s>" of a text is not the symbol
        lines.append(f"{piece}\t{count}")
    write_lines(path, lines)
    return path


def read_vocabulary(directory: Path) -> dict[str, int]:
    """Read the pieces that `write_vocabulary` wrote, without special symbols.

    Raises:
        UserError: A line is not a piece and its count, a piece occurs twice, or the special symbols
            are missing.
    """
    path = directory / VOCABULARY
    lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    rows = [line.rsplit("\t", 1) for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or not row[1].isdecimal() or len(row[1]) > MAX_DIGITS:
            raise UserError(
                f"{path}, line {number}: expected a piece and a count, got {quote(' '.join(row))}"
            )
    if tuple(row[0] for row in rows[: len(SPECIALS)]) != SPECIALS:
        raise UserError(f"{path} does not start with {' '.join(SPECIALS)}")
    pieces = {piece: int(count) for piece, count in rows[len(SPECIALS) :]}
    if len(pieces) != len(rows) - len(SPECIALS):
        raise UserError(f"{path} lists a piece twice")
    return pieces


def split_tag(line: str) -> tuple[str, str]:
    """Split a source line into its language tag, "" if it has none, and the text after it."""
    match = _TAG.match(line)
    return (match[1], line[match.end() :]) if match else ("", line)
