"""A fairseq model with its text processing: a checkpoint, its dictionaries and its codes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from nmtkit.config.model import PAPERS_DECODING
from nmtkit.corpus.bpe_subword import CONTINUES, BpeSubword, read_codes
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword
from nmtkit.corpus.subword import Subword
from nmtkit.corpus.vocabulary import MAX_DIGITS, MAX_FILE_BYTES
from nmtkit.interchange.fairseq_checkpoint import SYMBOLS, read_model
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.store.records import DamagedError, file_sha256, read_bytes, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import quote

# Maximum share of pieces in a dictionary that the codes cannot form, such as added placeholders.
MAX_FOREIGN = 0.01
FILLER = re.compile(r"madeupword\d{4}")  # fills the dictionary up to a multiple of 8
HYPHEN = "@-@"  # a hyphen between words, as `tokenizer.perl -a` writes it


def import_fairseq(
    checkpoint: Path, codes: Path, langs: tuple[Language, Language], preparation: TextPreparation
) -> ImportedModel:
    """Read a model of fairseq, whose dictionaries are next to its checkpoint.

    Args:
        checkpoint: A checkpoint of fairseq-train.
        codes: BPE codes of subword-nmt or fastBPE, or a sentencepiece model.
        langs: The languages of source and target.
        preparation: The text processing before subwords.

    Raises:
        UserError: A file cannot be read or imported, or the files do not belong together.
    """
    src_dictionary, tgt_dictionary = (checkpoint.with_name(f"dict.{lang}.txt") for lang in langs)
    # To open a pipe or a device could wait forever.
    for path in (checkpoint, codes, src_dictionary, tgt_dictionary):
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; copy it to one")
    description, weights = read_model(checkpoint, [lang.tag for lang in langs])
    pieces, n_rows = read_dictionary(src_dictionary)
    if read_dictionary(tgt_dictionary) != (pieces, n_rows):
        raise UserError(
            f"{src_dictionary} and {tgt_dictionary} differ; only a model with one dictionary for "
            "both sides (--joined-dictionary) can be imported"
        )
    # The pieces have the ids of the dictionary, whatever the codes could form in addition.
    subword = read_subword(codes, pieces)
    if n_rows != description.n_rows:
        raise UserError(
            f"{src_dictionary} has {n_rows:,} entries including the four special tokens, but the "
            f"model in {checkpoint} has {description.n_rows:,}; copy the dictionaries of its "
            "training to its folder"
        )

    # A checkpoint does not record how its text was tokenized.
    tokenizer: Literal["moses", "none"] = "moses" if isinstance(subword, BpeSubword) else "none"
    tokenizations = preparation.tokenizations(langs, tokenizer, HYPHEN in pieces)
    files = {checkpoint, codes, src_dictionary, tgt_dictionary}
    hashes = {path.name: file_sha256(path) for path in files}
    return ImportedModel(
        "fairseq", description, weights, subword, tokenizations, PAPERS_DECODING, hashes
    )


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
