"""A fairseq model with its text processing: a checkpoint, its dictionaries and its codes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.subword import BpeSubword, Subword
from nmtkit.interchange.fairseq import read_dictionary, read_model, read_subword
from nmtkit.model.description import Description
from nmtkit.store.records import sha256_of
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

HYPHEN = "@-@"  # a hyphen between words, as `tokenizer.perl -a` writes it


@dataclass(frozen=True)
class TextPreparation:
    """The text processing before subwords, which a checkpoint does not record.

    Attributes:
        tokenizer: None: Moses for BPE codes, none for a sentencepiece model.
        normalize_punctuation: Whether punctuation was normalized.
        aggressive_hyphens: Whether hyphens were split; None: if the dictionary has them.
        lowercase: Whether text was lowercased.
    """

    tokenizer: Literal["moses", "none"] | None = None
    normalize_punctuation: bool = False
    aggressive_hyphens: bool | None = None
    lowercase: bool = False


@dataclass(frozen=True)
class ImportedModel:
    """A model, its weights and its text processing.

    Attributes:
        description: The model.
        weights: Its weights by our names.
        subword: Its vocabulary.
        tokenizations: The tokenization of both sides.
        hashes: The SHA-256 of the files that were read, by their names.
    """

    description: Description
    weights: Mapping[str, Tensor]
    subword: Subword
    tokenizations: Tokenizations
    hashes: Mapping[str, str]

    def save_text(self, folder: Path) -> None:
        """Save the text processing in the folder of a bundle."""
        self.subword.save(folder)
        self.tokenizations.save(folder)


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
    description, weights = read_model(checkpoint, [lang.tag for lang in langs])
    src_dictionary, tgt_dictionary = (checkpoint.with_name(f"dict.{lang}.txt") for lang in langs)
    pieces, n_rows = read_dictionary(src_dictionary)
    if read_dictionary(tgt_dictionary) != (pieces, n_rows):
        raise UserError(
            f"{src_dictionary} and {tgt_dictionary} differ; only a model with one dictionary for "
            "both sides (--joined-dictionary) can be imported"
        )
    subword = read_subword(codes, pieces)
    if n_rows != description.n_rows:
        raise UserError(
            f"{src_dictionary} has {n_rows:,} entries including the four symbols, but the model in "
            f"{checkpoint} has {description.n_rows:,}; use the dictionary of its training"
        )

    hyphens = preparation.aggressive_hyphens
    if hyphens is None:
        hyphens = HYPHEN in pieces
    tokenizer = preparation.tokenizer
    if tokenizer is None:
        tokenizer = "moses" if isinstance(subword, BpeSubword) else "none"
    src, tgt = (
        Tokenization(
            lang.code,
            preparation.normalize_punctuation,
            preparation.lowercase,
            tokenizer,
            hyphens,
        )
        for lang in langs
    )
    files = {checkpoint, codes, src_dictionary, tgt_dictionary}
    hashes = {path.name: sha256_of(path) for path in files}
    return ImportedModel(description, weights, subword, Tokenizations(src=src, tgt=tgt), hashes)
