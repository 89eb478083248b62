"""The subwords of a fairseq model: its dictionary, and the codes that split text into them."""

import re
from collections.abc import Mapping
from pathlib import Path

from nmtkit.corpus.bpe_codes import CONTINUES, read_codes
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword
from nmtkit.corpus.subword import Subword
from nmtkit.corpus.vocabulary import MAX_DIGITS, MAX_FILE_BYTES
from nmtkit.store.records import DamagedError, read_bytes, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

# In a dictionary, these four precede the lines of the file. Ours are in another order.
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
# Maximum share of pieces in a dictionary that the codes cannot form, such as added placeholders.
MAX_FOREIGN = 0.01
FILLER = re.compile(r"madeupword\d{4}")  # fills the dictionary up to a multiple of 8


def read_dictionary(path: Path) -> tuple[dict[str, int], int]:
    """Read a dictionary of fairseq.

    Returns:
        The pieces in the order of their ids, with their counts, and the number of rows that the
        embeddings have for them, including the four symbols and fillers.

    Raises:
        UserError: The file cannot be read, or a line is not a new piece and its count.
    """
    pieces: dict[str, int] = {}
    try:
        lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    except DamagedError as error:
        raise UserError(
            f"{error.reason}; copy or link the dictionaries to the folder of the checkpoint"
        ) from None
    for number, line in enumerate(lines, start=1):
        piece, _, count = line.rstrip().rpartition(" ")
        is_new = piece and piece not in pieces and piece not in SYMBOLS
        if not is_new or not count.isdecimal() or len(count) > MAX_DIGITS:
            raise UserError(
                f"{path}, line {number:,}: expected a new piece and its count, got {quote(line)}"
            )
        pieces[piece] = int(count)
    # Fillers have rows in the matrices, but are never used.
    n_rows = len(SYMBOLS) + len(pieces)
    while pieces and FILLER.fullmatch(next(reversed(pieces))):
        pieces.popitem()
    return pieces, n_rows


def read_subword(path: Path, counts: Mapping[str, int]) -> Subword:
    """Read what split text into the pieces of a dictionary: BPE codes or a sentencepiece model.

    Args:
        path: BPE codes of subword-nmt or fastBPE, or a sentencepiece model.
        counts: The pieces of the dictionary with their counts, by their ids.

    Raises:
        UserError: The file cannot be read, or many of the pieces cannot result from it.
    """
    subword: Subword
    try:
        if read_bytes(path, MAX_FILE_BYTES).startswith(b"\n"):  # the first piece of a model
            subword = SentencePieceSubword.read(path, counts)
            foreign = _foreign_sentencepieces(path, counts)
        else:
            codes = read_codes(path)
            subword = BpeSubword(codes, counts)
            merged = set(codes.pieces())
            foreign = [p for p in counts if p not in merged and len(p.removesuffix(CONTINUES)) > 1]
    except DamagedError as error:
        raise UserError(f"{error.reason}; pass the right file with --codes") from None
    if len(foreign) > MAX_FOREIGN * len(counts):
        raise UserError(
            f"{len(foreign):,} of the {len(counts):,} subwords in the dictionary, such as "
            f"{quote(foreign[0])}, cannot result from {path}; with --codes, pass the codes that "
            "split the training text of the model"
        )
    return subword


def _foreign_sentencepieces(path: Path, counts: Mapping[str, int]) -> list[str]:
    """Return the pieces that are neither in the model nor a row of characters unknown to it."""
    model = SentencePieceSubword.read(path, None)
    own = set(model.pieces(range(model.n_tokens)))
    foreign = []
    for piece in counts:
        if len(piece) > 1 and piece not in own and piece not in model.split(piece):
            foreign.append(piece)
    return foreign
