"""Models of sentencepiece: learned, single or in pairs, with their own or another vocabulary.

nmtkit learns them as word-piece vocabularies (section 5.1, English-French).

Deviation: the paper's published code has word-pieces of its own (SubwordTextEncoder of
tensor2tensor): the substrings that occur often enough for about `n_tokens` of them, and a word is
split greedily, longest piece first. The pieces of sentencepiece are BPE: exactly `n_tokens`, and a
word is split by merging pairs in the order of learning. In both, a character outside the vocabulary
is encoded as bytes, and nothing is unknown.
"""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import sentencepiece

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.corpus.vocabulary import (
    MAX_FILE_BYTES,
    SubwordModel,
    piece_ids,
    read_vocabulary,
    split_tag,
    write_vocabulary,
)
from nmtkit.store.records import read_bytes
from nmtkit.utils.errors import UserError
from nmtkit.utils.interrupts import call_interruptibly

MODEL_FILE = "sentencepiece.model"
SOURCE_MODEL = "source.spm"  # as in folders of Marian models
TARGET_MODEL = "target.spm"

SPACE = "▁"  # in a piece of sentencepiece
FIRST_BYTE = "<0x00>"  # the first of the 256 pieces of bytes
SYMBOLS = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}  # by sentencepiece's names


class SentencePieceSubword(SubwordModel):
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
            self._id = piece_ids(counts)

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
        return [path, write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path, counts: Mapping[str, int] | None = None) -> Self:
        """Read a model that `save` wrote.

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
        """Read any model of sentencepiece."""
        model = read_bytes(path, MAX_FILE_BYTES)
        try:
            if not model:  # which the library would read as a model without pieces
                raise RuntimeError("the file is empty")
            return cls(model, counts)
        except (RuntimeError, UnicodeDecodeError):  # or a piece is not UTF-8
            raise UserError(f"{path} is not a sentencepiece model, or is damaged") from None


class SentencePiecePair(SubwordModel):
    """Two sentencepiece models with one vocabulary, as models of Marian (OPUS-MT) have them.

    In multilingual models, a tag such as ">>deu<<" at the beginning of a source text selects the
    target language. It is one piece, and as in transformers, an unknown one is `<unk>`.
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
            if split_tag(piece) == (piece, ""):
                self._tag_ids[piece] = id_

    @property
    def tags(self) -> list[str]:
        """The language tags of the vocabulary."""
        return list(self._tag_ids)

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of a source text, without an end symbol."""
        tag, text = self.split_tag(tokens)
        ids = self.src.encode(text)
        return [self._tag_ids.get(tag, UNK_ID), *ids] if tag else ids

    def encode_target(self, tokens: str) -> list[int]:
        """Return the ids of a target text, without an end symbol."""
        return self.tgt.encode(tokens)

    def split_tag(self, text: str) -> tuple[str, str]:
        """Split a source text into its language tag, "" if it has none, and the rest."""
        return split_tag(text)

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
        return [source, target, write_vocabulary(directory, self.counts)]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the files that `save` wrote into a folder."""
        counts = read_vocabulary(directory)
        return cls(
            SentencePieceSubword.read(directory / SOURCE_MODEL, counts),
            SentencePieceSubword.read(directory / TARGET_MODEL, counts),
        )


def learn_sentencepieces(
    word_counts: Mapping[str, int], n_tokens: int, protected: Sequence[str] = ()
) -> bytes:
    """Learn a model.

    Args:
        n_tokens: Number of pieces, symbols counted. There are fewer if none is left to merge.
        protected: Strings that are always one piece each.

    Returns:
        The contents of a model file.

    Raises:
        UserError: sentencepiece cannot learn that number of pieces.
    """
    # Sorted: the same counts give the same bytes in any order. A word of untokenized text can have
    # a tab; it is encoded as bytes.
    words = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
    symbols: dict[str, Any] = {f"{name}_id": id_ for name, id_ in SYMBOLS.items()}
    symbols |= {f"{name}_piece": SPECIALS[id_] for name, id_ in SYMBOLS.items()}
    if protected:
        symbols["user_defined_symbols"] = list(protected)
    # sentencepiece fails if the text has fewer pieces than a hard limit; then the limit is soft.
    for exactly in (True, False):
        lines = (f"{word}\t{count}" for word, count in words if "\t" not in word)
        model = io.BytesIO()
        try:
            train = partial(
                sentencepiece.SentencePieceTrainer.train,
                sentence_iterator=lines,
                input_format="tsv",
                model_writer=model,
                model_type="bpe",
                vocab_size=n_tokens,
                hard_vocab_limit=exactly,
                byte_fallback=True,
                normalization_rule_name="identity",  # the text is already normalized
                max_sentence_length=2**20,  # bytes; longer words would be skipped silently
                num_threads=1,  # the number is written into the model
                minloglevel=2,
                **symbols,
            )
            call_interruptibly(train)
            return model.getvalue()
        except RuntimeError as error:
            reason = error
    raise UserError(
        f"sentencepiece cannot learn {n_tokens:,} pieces from {len(word_counts):,} different "
        f"words ({reason}); set another n_tokens in [subword]"
    )
