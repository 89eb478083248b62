"""Byte-pair encoding by subword-nmt: codes, and their use with a vocabulary (section 5.1).

Codes are read as subword-nmt and fastBPE write them. The two versions of subword-nmt differ at the
end of a word. In 0.2 its last character is a symbol of its own, "n</w>". In 0.1 the end is a
symbol, "</w>", that merges like a character, and a merge found inside of words also applies before
their end. The codes of fastBPE are those of 0.2, with counts.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Literal, Self

from subword_nmt import apply_bpe

from nmtkit.corpus.special_tokens import SPECIALS, UNK_ID
from nmtkit.corpus.vocabulary import SubwordModel, piece_ids, read_vocabulary, write_vocabulary
from nmtkit.store.records import read_utf8, write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

Pair = tuple[str, str]
BpeVersion = Literal["0.1", "0.2"]

END_OF_WORD = "</w>"
CONTINUES = "@@"  # ends every piece of a word but the last
HEADER = "#version:"  # subword-nmt 0.1 writes none
HEADER_LINES: dict[str, BpeVersion] = {f"{HEADER} 0.1": "0.1", f"{HEADER} 0.2": "0.2"}
MAX_CODES_BYTES = 2**23  # 32,000 merges take 400 kB
CODES = "codes.bpe"
MAX_UNUSED = 1_000  # pieces that the training text does not have
MAX_CACHED_WORDS = 2**18
MAX_CACHED_CHARACTERS = 64  # longer words are rare; cached, they could take a gigabyte


@dataclass(frozen=True)
class BpeCodes:
    """Merges in the order of learning, and the version that applies them."""

    merges: Sequence[Pair]
    version: BpeVersion = "0.2"

    def lines(self) -> list[str]:
        """Return the lines of the file that subword-nmt writes."""
        header = [] if self.version == "0.1" else [f"{HEADER} {self.version}"]
        return [*header, *map(" ".join, self.merges)]

    def pieces(self) -> Iterator[str]:
        """Yield the pieces that the merges can form, as they stand in a text."""
        for pair in self.merges:
            piece = "".join(pair)
            if END_OF_WORD not in piece:
                yield piece + CONTINUES
            # In 0.1 a merge inside of words also applies at their ends.
            if END_OF_WORD in piece or self.version == "0.1":
                yield piece.removesuffix(END_OF_WORD)

    def encoder(self, vocabulary: Container[str] = ()) -> apply_bpe.BPE:
        """Return an encoder of subword-nmt for the version of the codes.

        Args:
            vocabulary: If not empty, a piece outside of it is split by the merges that formed it.
        """
        bpe = apply_bpe.BPE(StringIO("\n".join(self.lines())), len(self.merges), vocab=vocabulary)
        if self.version == "0.1":
            # To split the last piece of a word, subword-nmt looks up the merge that formed it with
            # its end. In 0.1 the piece may have none; or it merged with its end last, and what is
            # split off would be empty. In both cases the merge that formed the piece is meant.
            splits = {
                piece: pair
                for piece, pair in bpe.bpe_codes_reverse.items()
                if pair[1] != END_OF_WORD
            }
            for piece, (left, right) in list(splits.items()):
                if not right.endswith(END_OF_WORD):
                    splits.setdefault(piece + END_OF_WORD, (left, right + END_OF_WORD))
            bpe.bpe_codes_reverse = splits
        return bpe


def read_codes(path: Path) -> BpeCodes:
    """Read codes of subword-nmt, whose header has their version, or of fastBPE.

    Raises:
        UserError: A line is not a merge, or the header of version 0.2 was removed.
    """
    text = read_utf8(path, MAX_CODES_BYTES).removesuffix("\n")
    lines = text.split("\n") if text else []  # 0.1 without a merge
    header = lines[0].strip() if lines else ""
    version = HEADER_LINES.get(header)
    if header.startswith(HEADER) and version is None:
        raise UserError(
            f"{path} starts with {quote(header)}; use BPE codes with the header "
            f"{' or '.join(HEADER_LINES)}"
        )
    first_number = 1 if version is None else 2
    rows = [line.strip("\r\n ").split(" ") for line in lines[first_number - 1 :]]
    has_counts = version is None and rows != [] and len(rows[0]) == 3  # fastBPE
    if version is None:
        version = "0.2" if has_counts else "0.1"

    merges = []
    for number, row in enumerate(rows, start=first_number):
        is_complete = len(row) == 3 and row[2].isdecimal() if has_counts else len(row) == 2
        if not is_complete or not row[0] or not row[1]:
            raise UserError(
                f"{path}, line {number:,}: expected two subwords (in codes of fastBPE, also a "
                f"count), got {quote(lines[number - 1])}"
            )
        merges.append((row[0], row[1]))
    if version == "0.1":
        _check_ends(path, merges)
    return BpeCodes(merges, version)


def _check_ends(path: Path, merges: Sequence[Pair]) -> None:
    """Check that codes without a header merge the end of a word before they use the result.

    Applied as 0.1, codes of 0.2 that have lost their header would split words differently.
    """
    formed = {END_OF_WORD}
    for pair in merges:
        for symbol in pair:
            if symbol.endswith(END_OF_WORD) and symbol not in formed:
                raise UserError(
                    f"{path} has no merge that forms {quote(symbol)}, as is usual in version 0.2 "
                    'of subword-nmt; if it is of this version, add its header, "#version: 0.2", '
                    "as the first line"
                )
        formed.add("".join(pair))


# The use of codes with a vocabulary


class BpeSubword(SubwordModel):
    """Byte-pair encoding by subword-nmt. Pieces outside the vocabulary are split."""

    def __init__(self, codes: BpeCodes, pieces: Mapping[str, int]) -> None:
        """Use the codes with a vocabulary.

        Args:
            codes: The merges and their version.
            pieces: The pieces in the order of their ids, with their counts, without special
                symbols.
        """
        self.codes = codes
        self.counts = pieces
        self._bpe = codes.encoder(pieces)
        self._pieces = [*SPECIALS, *pieces]
        self._id = piece_ids(pieces)
        self._cached = lru_cache(MAX_CACHED_WORDS)(self._encode_word)

    def __reduce__(self) -> tuple[type[Self], tuple[BpeCodes, Mapping[str, int]]]:
        """Pickle without the cache."""
        return type(self), (self.codes, self.counts)

    @classmethod
    def from_words(cls, codes: BpeCodes, word_counts: Mapping[str, int]) -> Self:
        """Use the codes with the pieces of a text as the vocabulary.

        Args:
            codes: The merges and their version.
            word_counts: The words of the training text and their counts.
        """
        # Words, not lines: millions of lines have few different words.
        bpe = codes.encoder()
        counts: Counter[str] = Counter()
        for word, count in word_counts.items():
            for piece in _split(bpe, word):
                counts[piece] += count
        characters = set("".join(word_counts))
        return cls(codes, _vocabulary(counts, characters))

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of space-separated tokens, without an end symbol."""
        ids: list[int] = []
        # Only spaces separate words, as in subword-nmt.
        for word in tokens.strip("\r\n ").split(" "):
            if word:
                is_long = len(word) > MAX_CACHED_CHARACTERS
                ids.extend(self._encode_word(word) if is_long else self._cached(word))
        return ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        return tuple(self._id.get(piece, UNK_ID) for piece in _split(self._bpe, word))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the space-separated tokens of ids, without special symbols."""
        text = " ".join(self._pieces[id_] for id_ in ids if id_ >= len(SPECIALS))
        return f"{text} ".replace(f"{CONTINUES} ", "").rstrip(" ")

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Split ids into those of the space-separated tokens."""
        words: list[list[int]] = [[]]
        # A translation may end in a piece that should continue; it is a word, too.
        for id_, piece in zip(ids, self.pieces(ids), strict=True):
            words[-1].append(id_)
            if not piece.endswith(CONTINUES):
                words.append([])
        return [word for word in words if word]

    def save(self, directory: Path) -> list[Path]:
        """Write the codes and the vocabulary into a folder, and return the files."""
        codes_path = directory / CODES
        write_lines(codes_path, self.codes.lines())
        return [codes_path, write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the files that `save` wrote."""
        return cls(read_codes(directory / CODES), read_vocabulary(directory))


def _vocabulary(counts: Counter[str], characters: set[str]) -> dict[str, int]:
    """Order pieces by count, ties alphabetically, and add pieces of the text's characters.

    Deviation: a character has two pieces, inside a word and at its end, even with count 0, and
    is never unknown. Pieces with count 0 are never trained; of them, only those of the most
    frequent characters are added, `MAX_UNUSED` of them. The vocabulary of the paper's published
    code is that of subword-nmt: only the pieces of the encoded training text.

    Args:
        counts: The pieces of the encoded training text and their counts.
        characters: The characters of the training text.
    """
    frequencies: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece:
            frequencies[character] += count
    unused: list[str] = []
    for character in sorted(characters, key=lambda character: (-frequencies[character], character)):
        for piece in (character, character + CONTINUES):
            if piece not in counts:
                unused.append(piece)
    all_counts = {**counts, **dict.fromkeys(unused[:MAX_UNUSED], 0)}
    return dict(sorted(all_counts.items(), key=lambda item: (-item[1], item[0])))


def _split(bpe: apply_bpe.BPE, word: str) -> list[str]:
    """Split a word into pieces; all but the last end in "@@"."""
    try:
        pieces: list[str] = bpe.segment_tokens([word])
    except RecursionError:
        # subword-nmt reverts merges recursively. Learned codes never nest that deeply.
        raise UserError(
            f"the BPE codes split {quote(word)} in too many steps; use codes that were learned "
            "from text"
        ) from None
    bpe.cache.clear()  # it has no limit
    return pieces
