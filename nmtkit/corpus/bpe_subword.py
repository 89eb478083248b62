"""Byte-pair encoding by subword-nmt, with a vocabulary (section 5.1)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Self

from subword_nmt import apply_bpe

from nmtkit.corpus.bpe_codes import CONTINUES, BpeCodes, read_codes
from nmtkit.corpus.special_tokens import SPECIALS, UNK_ID
from nmtkit.corpus.vocabulary import SubwordModel, piece_ids, read_vocabulary, write_vocabulary
from nmtkit.store.records import write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

CODES = "codes.bpe"
MAX_UNUSED = 1_000  # pieces that the training text does not have
MAX_CACHED_WORDS = 2**18
MAX_CACHED_CHARACTERS = 64  # longer words are rare; cached, they could take a gigabyte


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
