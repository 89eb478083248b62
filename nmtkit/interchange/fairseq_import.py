"""A fairseq model with its text processing: a checkpoint, its dictionaries and its codes."""

from pathlib import Path
from typing import Literal

from nmtkit.config.recipe import PAPERS_DECODING
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.interchange.fairseq_checkpoint import read_model
from nmtkit.interchange.fairseq_subword import read_dictionary, read_subword
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.store.records import file_sha256
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

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
