"""Word-piece vocabularies (section 5.1, English-French), made by sentencepiece.

Deviation: the paper's word-piece code was never published; sentencepiece's BPE of the same size
stands in for it. A character outside the vocabulary is spelt in bytes, so nothing is unknown.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import sentencepiece

from nmtkit.artifacts import read_bytes
from nmtkit.errors import UserError
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID

MODEL_FILE = "sentencepiece.model"
MAX_BYTES = 2**23  # of a model; 32,000 pieces take 800 kB


def learn_sentencepieces(word_counts: Mapping[str, int], n_tokens: int) -> bytes:
    """Return a model of exactly `n_tokens` pieces, special symbols counted.

    The same counts give the same bytes, whatever their order.

    Raises: UserError when the text is too small for that many pieces.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_tsv(word_counts),
            input_format="tsv",
            model_writer=model,
            model_type="bpe",
            vocab_size=n_tokens,
            byte_fallback=True,
            normalization_rule_name="identity",  # the text is normalized by now
            max_sentence_length=2**20,  # bytes; longer words would be passed over in silence
            num_threads=1,  # is written into the model
            minloglevel=2,
            pad_id=PAD_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            pad_piece=SPECIALS[PAD_ID],
            bos_piece=SPECIALS[BOS_ID],
            eos_piece=SPECIALS[EOS_ID],
            unk_piece=SPECIALS[UNK_ID],
        )
    except RuntimeError as error:
        raise UserError(
            f"sentencepiece cannot make {n_tokens:,} pieces from {len(word_counts):,} different "
            f"words ({error}); ask for another vocabulary size"
        ) from None
    return model.getvalue()


def _tsv(word_counts: Mapping[str, int]) -> Iterator[str]:
    """Yield words and counts in an order that does not depend on where they were read."""
    for word, count in sorted(word_counts.items(), key=lambda item: (-item[1], item[0])):
        if "\t" not in word:  # in text that was not tokenized; spelt in bytes, then
            yield f"{word}\t{count}"


class SentencePieceSubword:
    """A sentencepiece model as a `Subword`."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def n_tokens(self) -> int:
        """Return the size of the vocabulary, special symbols counted, padding rows not."""
        return int(self._processor.get_piece_size())

    def encode(self, tokens: str) -> list[int]:
        """Return the ids of space-separated tokens; no end symbol."""
        ids: list[int] = self._processor.encode(tokens, out_type=int)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the space-separated tokens of ids, special symbols left out."""
        text: str = self._processor.decode([int(id_) for id_ in ids if id_ >= len(SPECIALS)])
        return " ".join(text.split())  # bytes may spell a line break; a translation is one line

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id, with the marks that say what joins; special symbols too."""
        return [self._processor.id_to_piece(int(id_)) for id_ in ids]

    def save(self, directory: Path) -> list[Path]:
        """Write the model as sentencepiece writes it, and return its file."""
        path = directory / MODEL_FILE
        path.write_bytes(self._model)
        return [path]

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            UserError: the file is missing or damaged, or another program made it.
        """
        path = directory / MODEL_FILE
        model = read_bytes(path, MAX_BYTES)
        try:
            subword = cls(model)
            subword.pieces(range(subword.n_tokens))  # that each is UTF-8
        except (RuntimeError, UnicodeDecodeError):
            raise UserError(f"{path} is no sentencepiece model, or is damaged") from None
        processor = subword._processor
        specials = processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()
        if specials != (PAD_ID, BOS_ID, EOS_ID, UNK_ID):
            raise UserError(f"{path} does not start with {' '.join(SPECIALS)}")
        return subword
