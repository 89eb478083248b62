"""Tokens to ids and back: one interface over BPE and sentencepiece (section 5.1)."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Self

import sentencepiece
from subword_nmt import apply_bpe

from nmtkit.corpus.bpe_learning import Pair
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
MAX_FILE_BYTES = 2**23  # of codes, a vocabulary or a model; 37,000 pieces take 400 to 800 kB
MAX_DIGITS = 18  # of a count
MAX_UNUSED = 1_000  # pieces that the training text does not have
MAX_CACHED_WORDS = 2**18
MAX_CACHED_CHARACTERS = 64  # longer words are rare; cached, they could take a gigabyte

VERSION_LINE = "#version: 0.2"  # of subword-nmt's codes
CONTINUES = "@@"  # ends every piece of a word but the last
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
        """Return the size of the vocabulary, with special symbols but without padding rows."""
        return len(self._pieces)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id, with the marks that tell how pieces join."""
        return [self._pieces[id_] for id_ in ids]


class BpeSubword(_Pieces):
    """Byte-pair encoding by subword-nmt, which takes apart a piece outside the vocabulary."""

    def __init__(self, merges: Sequence[Pair], pieces: Mapping[str, int]) -> None:
        """Take the merges and the counts of the pieces in id order, without special symbols."""
        self._merges = merges
        self.counts = pieces
        self._bpe = _bpe(merges, pieces)
        self._pieces = [*SPECIALS, *pieces]
        self._id = {piece: id_ for id_, piece in enumerate(pieces, start=len(SPECIALS))}
        self._cached = lru_cache(MAX_CACHED_WORDS)(self._encode_word)

    def __reduce__(self) -> tuple[type[Self], tuple[Sequence[Pair], Mapping[str, int]]]:
        return type(self), (self._merges, self.counts)  # a cache stays in its process

    @classmethod
    def of_words(cls, merges: Sequence[Pair], word_counts: Mapping[str, int]) -> Self:
        """Take the merges and the words of the training text, whose pieces are the vocabulary."""
        bpe = _bpe(merges)
        counts: Counter[str] = Counter()
        for word, count in word_counts.items():
            for piece in _split(bpe, word):
                counts[piece] += count
        characters = {character for word in word_counts for character in word}
        return cls(merges, _vocabulary(counts, characters))

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of space-separated tokens, without an end symbol."""
        ids: list[int] = []
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
        """Return the ids of each space-separated token."""
        words: list[list[int]] = [[]]
        for id_, piece in zip(ids, self.pieces(ids), strict=True):
            words[-1].append(id_)
            if not piece.endswith(CONTINUES):
                words.append([])
        return [word for word in words if word]

    def save(self, directory: Path) -> list[Path]:
        """Write what `load` reads, and return the files."""
        codes = directory / CODES
        write_lines(codes, _codes(self._merges))
        return [codes, _write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
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
            self._id = {piece: id_ for id_, piece in enumerate(counts, start=len(SPECIALS))}

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
        pieces = self.pieces([id_ for id_ in ids if id_ >= len(SPECIALS)])
        text: str = self._processor.decode(pieces)
        return " ".join(text.split())  # bytes may encode a line break; a translation is one line

    def words(self, ids: Sequence[int]) -> list[list[int]]:
        words: list[list[int]] = []
        for id_, piece in zip(ids, self.pieces(ids), strict=True):
            if piece.startswith(SPACE) or not words:
                words.append([])
            words[-1].append(id_)
        return words

    def save(self, directory: Path) -> list[Path]:
        path = directory / MODEL_FILE
        path.write_bytes(self.model)
        return [path, *([] if self.counts is None else [_write_vocabulary(directory, self.counts)])]

    @classmethod
    def load(cls, directory: Path, counts: Mapping[str, int] | None = None) -> Self:
        path = directory / MODEL_FILE
        subword = cls.read(path, counts)
        own = {name: getattr(subword._processor, f"{name}_id")() for name in SYMBOLS}
        if counts is None and own != SYMBOLS:
            raise UserError(f"{path} does not start with {' '.join(SPECIALS)}")
        return subword

    @classmethod
    def read(cls, path: Path, counts: Mapping[str, int] | None) -> Self:
        """Read any model of sentencepiece; the other arguments are those of the class."""
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
        tag, text = self.split_tag(tokens)
        ids = self.src.encode(text)
        return [self._tag_ids[tag], *ids] if tag else ids

    def encode_target(self, tokens: str) -> list[int]:
        return self.tgt.encode(tokens)

    def split_tag(self, text: str) -> tuple[str, str]:
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
        source, target = directory / SOURCE_MODEL, directory / TARGET_MODEL
        source.write_bytes(self.src.model)
        target.write_bytes(self.tgt.model)
        return [source, target, _write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
        counts = _read_vocabulary(directory)
        return cls(
            SentencePieceSubword.read(directory / SOURCE_MODEL, counts),
            SentencePieceSubword.read(directory / TARGET_MODEL, counts),
        )


Subword = BpeSubword | SentencePieceSubword | SentencePiecePair


def _vocabulary(counts: Counter[str], characters: set[str]) -> dict[str, int]:
    """Order pieces by count, ties alphabetically, and add pieces of the text's characters.

    Deviation: characters have two pieces, inside a word and at its end, even with count 0, so that
    they are never unknown, but of these only the `MAX_UNUSED` pieces of the most frequent
    characters, since they are never trained. The vocabulary of the paper's published code is that
    of subword-nmt: the pieces of the encoded training text alone.
    """
    frequency: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece:
            frequency[character] += count
    by_frequency = sorted(characters, key=lambda each: (-frequency[each], each))
    pieces = chain.from_iterable((each, each + CONTINUES) for each in by_frequency)
    unused = [piece for piece in pieces if piece not in counts]
    all_counts = {**counts, **dict.fromkeys(unused[:MAX_UNUSED], 0)}
    return dict(sorted(all_counts.items(), key=lambda item: (-item[1], item[0])))


def _bpe(merges: Sequence[Pair], vocabulary: Container[str] = ()) -> apply_bpe.BPE:
    codes = StringIO("\n".join(_codes(merges)))
    return apply_bpe.BPE(codes, merges=len(merges), vocab=vocabulary)


def _split(bpe: apply_bpe.BPE, word: str) -> list[str]:
    """Split a word into pieces, of which all but the last end in "@@"."""
    try:
        pieces: list[str] = bpe.segment_tokens([word])
    except RecursionError:
        raise UserError(
            f"the BPE codes take {quote(word)} apart in too many steps; give codes that are learned"
        ) from None
    bpe.cache.clear()  # it has no limit
    return pieces


def _codes(merges: Sequence[Pair]) -> list[str]:
    return [VERSION_LINE, *map(" ".join, merges)]


def read_codes(path: Path) -> list[Pair]:
    """Read the merges of subword-nmt (version 0.2), or those of fastBPE, which have counts."""
    lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    n_header = int(lines[0].strip() == VERSION_LINE)
    merges = []
    for number, line in enumerate(lines[n_header:], start=1 + n_header):
        match line.strip("\r\n ").split(" "):
            case [first, second] if n_header and first and second:
                merges.append((first, second))
            case [first, second, n] if not n_header and first and second and n.isdecimal():
                merges.append((first, second))
            case _:
                raise UserError(
                    f"{path}, line {number:,}: {quote(line)} is neither of subword-nmt 0.2, whose "
                    f"codes begin with {VERSION_LINE}, nor of fastBPE (two subwords and a count)"
                )
    return merges


def load_subword(artifact: Artifact) -> Subword:
    """Load what a `Subword` saved, by the method whose files the manifest lists."""
    files = artifact.manifest.files
    if SOURCE_MODEL in files:
        for name in (TARGET_MODEL, VOCABULARY):
            artifact.file(name)
    elif MODEL_FILE not in files:
        for name in (CODES, VOCABULARY):
            artifact.file(name)
    return read_subword(artifact.path, files)


def read_subword(directory: Path, files: Container[str]) -> Subword:
    """Read what a `Subword` saved, if only these `files` are in the folder."""
    if SOURCE_MODEL in files:
        return SentencePiecePair.load(directory)
    if MODEL_FILE not in files:
        return BpeSubword.load(directory)
    counts = _read_vocabulary(directory) if VOCABULARY in files else None
    return SentencePieceSubword.load(directory, counts)


def _write_vocabulary(directory: Path, counts: Mapping[str, int]) -> Path:
    path = directory / VOCABULARY
    rows = [*((special, 0) for special in SPECIALS), *counts.items()]
    write_lines(path, (f"{piece}\t{count}" for piece, count in rows))
    return path


def _read_vocabulary(directory: Path) -> dict[str, int]:
    path = directory / VOCABULARY
    lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    rows = [line.rsplit("\t", 1) for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2 or not row[1].isdecimal() or len(row[1]) > MAX_DIGITS:
            raise UserError(f"{path}, line {number}: {quote(row)} is not a piece and a count")
    if tuple(row[0] for row in rows[: len(SPECIALS)]) != SPECIALS:
        raise UserError(f"{path} does not start with {' '.join(SPECIALS)}")
    pieces = {piece: int(count) for piece, count in rows[len(SPECIALS) :]}
    if len(pieces) != len(rows) - len(SPECIALS):
        raise UserError(f"{path} lists a piece twice")
    return pieces
