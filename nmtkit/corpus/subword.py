"""Tokens to ids and back: one interface over BPE and sentencepiece (section 5.1)."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Self

import sentencepiece
from subword_nmt import apply_bpe

from nmtkit.corpus.bpe_codes import CONTINUES, BpeCodes, read_codes
from nmtkit.corpus.sentencepieces import SYMBOLS
from nmtkit.corpus.special_tokens import SPECIALS, UNK_ID
from nmtkit.store.artifacts import Artifact
from nmtkit.store.records import read_bytes, read_utf8, write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

CODES = "codes.bpe"
VOCABULARY = "vocabulary.tsv"
MODEL_FILE = "sentencepiece.model"
SOURCE_MODEL = "source.spm"  # as in folders of Marian models
TARGET_MODEL = "target.spm"
# BpeSubword has CODES and VOCABULARY, SentencePieceSubword has MODEL_FILE and perhaps VOCABULARY,
# SentencePiecePair has the last two and VOCABULARY.
SUBWORD_FILES = (CODES, VOCABULARY, MODEL_FILE, SOURCE_MODEL, TARGET_MODEL)
MAX_FILE_BYTES = 2**23  # of a vocabulary or a model; 37,000 pieces take 400 to 800 kB
MAX_DIGITS = 18  # of a count
MAX_UNUSED = 1_000  # pieces that the training text does not have
MAX_CACHED_WORDS = 2**18
MAX_CACHED_CHARACTERS = 64  # longer words are rare; cached, they could take a gigabyte

SPACE = "▁"  # in a piece of sentencepiece
FIRST_BYTE = "<0x00>"  # the first of the 256 pieces of bytes
TAG_START = ">>"  # of the tag of a target language
TAG_END = "<<"


class _Pieces(ABC):
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

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a source text into a language tag, which may be empty, and the rest."""
        return "", text

    @property
    def n_tokens(self) -> int:
        """The size of the vocabulary, with special symbols but without padding rows."""
        return len(self._pieces)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of ids, with their marks of continuation or of spaces."""
        return [self._pieces[id_] for id_ in ids]


class BpeSubword(_Pieces):
    """Byte-pair encoding by subword-nmt, which splits a piece that is not in the vocabulary."""

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
        self._id = _piece_ids(pieces)
        self._cached = lru_cache(MAX_CACHED_WORDS)(self._encode_word)

    def __reduce__(self) -> tuple[type[Self], tuple[BpeCodes, Mapping[str, int]]]:
        """Pickle without the cache, which stays in its process."""
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
        return [codes_path, _write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the files that `save` wrote."""
        return cls(read_codes(directory / CODES), _read_vocabulary(directory))


class SentencePieceSubword(_Pieces):
    """A sentencepiece model, with its own ids or with those of another vocabulary."""

    def __init__(self, model: bytes, counts: Mapping[str, int] | None = None) -> None:
        """Load a model.

        Args:
            model: The contents of a model file.
            counts: The pieces of a vocabulary in the order of their ids, with their counts, without
                special symbols. None for the vocabulary of the model.
        """
        self.model = model
        self.counts = counts
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        if counts is None:
            n_pieces = self._processor.get_piece_size()
            self._pieces = [self._processor.id_to_piece(id_) for id_ in range(n_pieces)]
        else:
            self._pieces = [*SPECIALS, *counts]
            self._id = _piece_ids(counts)

    @property
    def protected(self) -> list[str]:
        """Strings that are always one piece each: the pieces between the symbols and the bytes."""
        if self.counts is not None or FIRST_BYTE not in self._pieces:
            return []  # not a model that nmtkit learned
        return self._pieces[len(SPECIALS) : self._pieces.index(FIRST_BYTE)]

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of a text, without an end symbol."""
        if self.counts is None:
            ids: list[int] = self._processor.encode(tokens, out_type=int)
            return ids
        # As text: fairseq's vocabulary has pieces of characters that are unknown to the model.
        return [self._id.get(piece, UNK_ID) for piece in self.split(tokens)]

    def split(self, text: str) -> list[str]:
        """Split a text into pieces; unknown characters are pieces too, several in a row are one."""
        pieces: list[str] = self._processor.encode(text, out_type=str)
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids on one line, without special symbols."""
        pieces = self.pieces([id_ for id_ in ids if id_ >= len(SPECIALS)])
        text: str = self._processor.decode(pieces)
        return " ".join(text.split())  # bytes may encode a line break

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Split ids at the pieces that begin with a space."""
        words: list[list[int]] = []
        for id_, piece in zip(ids, self.pieces(ids), strict=True):
            if piece.startswith(SPACE) or not words:
                words.append([])
            words[-1].append(id_)
        return words

    def save(self, directory: Path) -> list[Path]:
        """Write the model into a folder, with the vocabulary if it is another; return the files."""
        path = directory / MODEL_FILE
        path.write_bytes(self.model)
        if self.counts is None:
            return [path]
        return [path, _write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path, counts: Mapping[str, int] | None = None) -> Self:
        """Read a model that `save` wrote.

        Args:
            directory: Its folder.
            counts: As for the class.

        Raises:
            UserError: The file is damaged, or has other ids of special tokens than ours.
        """
        path = directory / MODEL_FILE
        subword = cls.read(path, counts)
        symbols = {name: getattr(subword._processor, f"{name}_id")() for name in SYMBOLS}
        if counts is None and symbols != SYMBOLS:
            raise UserError(f"{path} does not start with {' '.join(SPECIALS)}")
        return subword

    @classmethod
    def read(cls, path: Path, counts: Mapping[str, int] | None) -> Self:
        """Read any model of sentencepiece.

        Args:
            path: The file.
            counts: As for the class.
        """
        model = read_bytes(path, MAX_FILE_BYTES)
        try:
            return cls(model, counts)
        except (RuntimeError, UnicodeDecodeError):  # or a piece is not UTF-8
            raise UserError(f"{path} is not a sentencepiece model, or is damaged") from None


class SentencePiecePair(_Pieces):
    """Two sentencepiece models with one vocabulary, as models of Marian (OPUS-MT) have them.

    In multilingual models, a tag such as ">>deu<<" at the beginning of a source text selects the
    target language. It is one piece if the vocabulary has it.
    """

    def __init__(self, src: SentencePieceSubword, tgt: SentencePieceSubword) -> None:
        """Take the models of source and target text, with the same `counts`."""
        if src.counts is None or src.counts != tgt.counts:
            raise ValueError("the two sentencepiece models need the same counts")
        self.src = src
        self.tgt = tgt
        self.counts = src.counts
        self._pieces = src._pieces
        self._tag_ids = {}
        for id_, piece in enumerate(self._pieces):
            if piece.startswith(TAG_START) and piece.endswith(TAG_END):
                self._tag_ids[piece] = id_

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of a source text, without an end symbol."""
        tag, text = self.split_tag(tokens)
        ids = self.src.encode(text)
        return [self._tag_ids[tag], *ids] if tag else ids

    def encode_target(self, tokens: str) -> list[int]:
        """Return the ids of a target text, without an end symbol."""
        return self.tgt.encode(tokens)

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a source text into its language tag, "" if it has none, and the rest."""
        stripped = text.lstrip()
        tag = stripped[: stripped.find(TAG_END) + len(TAG_END)]
        return (tag, stripped[len(tag) :]) if tag in self._tag_ids else ("", text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special symbols."""
        # The model of the target returns pieces that only the other one has as they are.
        return " ".join(self.tgt.decode(ids).replace(SPACE, " ").split())

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the ids of each space-separated word."""
        return self.tgt.words(ids)

    def save(self, directory: Path) -> list[Path]:
        """Write what `load` reads, and return the files."""
        source = directory / SOURCE_MODEL
        target = directory / TARGET_MODEL
        source.write_bytes(self.src.model)
        target.write_bytes(self.tgt.model)
        return [source, target, _write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the files that `save` wrote into a folder."""
        counts = _read_vocabulary(directory)
        return cls(
            SentencePieceSubword.read(directory / SOURCE_MODEL, counts),
            SentencePieceSubword.read(directory / TARGET_MODEL, counts),
        )


Subword = BpeSubword | SentencePieceSubword | SentencePiecePair


def _piece_ids(pieces: Mapping[str, int]) -> dict[str, int]:
    """Return the ids of pieces, which follow those of the special symbols."""
    return {piece: id_ for id_, piece in enumerate(pieces, start=len(SPECIALS))}


def _vocabulary(counts: Counter[str], characters: set[str]) -> dict[str, int]:
    """Order pieces by count, ties alphabetically, and add pieces of the text's characters.

    Deviation: a character has two pieces, inside a word and at its end, even with count 0, so that
    it is never unknown. Of pieces with count 0, which are never trained, only those of the most
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
    """Split a word into pieces, of which all but the last end in "@@"."""
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


def load_subword(artifact: Artifact) -> Subword:
    """Load the subword model of an artifact, by the method whose files its manifest lists."""
    files = artifact.manifest.files
    if SOURCE_MODEL in files:
        for name in (TARGET_MODEL, VOCABULARY):
            artifact.file(name)
    elif MODEL_FILE not in files:
        for name in (CODES, VOCABULARY):
            artifact.file(name)  # raises an error if the manifest lacks it
    return read_subword(artifact.path, files)


def read_subword(directory: Path, files: Container[str]) -> Subword:
    """Read the subword model in a folder.

    Args:
        directory: The folder.
        files: Names of its files; others are not read.
    """
    if SOURCE_MODEL in files:
        return SentencePiecePair.load(directory)
    if MODEL_FILE not in files:
        return BpeSubword.load(directory)
    counts = _read_vocabulary(directory) if VOCABULARY in files else None
    return SentencePieceSubword.load(directory, counts)


def _write_vocabulary(directory: Path, counts: Mapping[str, int]) -> Path:
    """Write pieces and their counts in the order of their ids, special symbols first."""
    path = directory / VOCABULARY
    lines = [f"{special}\t0" for special in SPECIALS]
    for piece, count in counts.items():  # a text may have a piece "<s>", which is not the symbol
        lines.append(f"{piece}\t{count}")
    write_lines(path, lines)
    return path


def _read_vocabulary(directory: Path) -> dict[str, int]:
    """Read the pieces that `_write_vocabulary` wrote, without special symbols.

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
