"""import: a model that fairseq trained, as a bundle."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nmtkit import progress
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.subword import BpeSubword
from nmtkit.corpus.tokenizations import Tokenizations
from nmtkit.decoding.bundle import write_bundle
from nmtkit.errors import UserError
from nmtkit.files import check_room, sha256_of, whole_folder
from nmtkit.interchange.fairseq import Dictionary, read_dictionary, read_merges, read_model
from nmtkit.languages import Language
from nmtkit.model.description import Description
from nmtkit.recipe import PAPERS_DECODING
from nmtkit.store import write_manifest

HYPHEN = "@-@"  # what tokenizer.perl -a makes of a hyphen in a word


@dataclass(frozen=True)
class TextOptions:
    """How the text was prepared that a model was trained on."""

    langs: tuple[Language, Language]
    tokenizer: Literal["moses", "none"] = "moses"
    aggressive_hyphens: bool | None = None  # None: as the dictionary says
    normalize_punctuation: bool = False
    lowercase: bool = False


def import_fairseq(
    checkpoint: Path, folder: Path, data: Path | None, codes: Path, text: TextOptions
) -> Path:
    """Publish the model of a fairseq checkpoint as the bundle `folder`.

    Args:
        checkpoint: The file.
        folder: A new folder.
        data: The folder of dict.LANG.txt; by default that of `checkpoint`.
        codes: The BPE codes of subword-nmt or fastBPE.
        text: How text was prepared.

    Raises:
        UserError: `folder` exists, or a file is damaged or is not one that can be imported.
    """
    with whole_folder(folder) as draft:
        dictionaries = [(data or checkpoint.parent) / f"dict.{lang}.txt" for lang in text.langs]
        dictionary = _joined(dictionaries)
        merges = read_merges(codes)
        model = read_model(checkpoint, [lang.tag for lang in text.langs])
        if dictionary.n_rows != model.n_rows:
            raise UserError(
                f"{dictionaries[0]} has {dictionary.n_rows:,} entries with the four symbols, but "
                f"the model in {checkpoint} has {model.n_rows:,}; give the dictionary that it was "
                "trained with"
            )
        hyphens = text.aggressive_hyphens
        if hyphens is None:
            hyphens = HYPHEN in dictionary.pieces
            progress.say(
                f"import: {HYPHEN} is {'' if hyphens else 'not '}in the dictionary, so words are "
                f"{'' if hyphens else 'not '}split at hyphens"
            )
        sides = [
            Tokenization(
                lang.code,
                normalize_punctuation=text.normalize_punctuation,
                lowercase=text.lowercase,
                tokenizer=text.tokenizer,
                aggressive_hyphens=hyphens,
            )
            for lang in text.langs
        ]
        check_room(draft, sum(each.nbytes for each in model.weights.values()), "import")
        BpeSubword(merges, dictionary.pieces).save(draft)
        Tokenizations(src=sides[0], tgt=sides[1]).save(draft)
        description = Description(config=model.config, n_rows=model.n_rows)
        write_bundle(draft, [], description, PAPERS_DECODING, model.weights)
        origin = {path.name: sha256_of(path) for path in {checkpoint, codes, *dictionaries}}
        write_manifest(draft, {"kind": "import", "depends_on": {"fairseq": origin}})
    return folder


def _joined(paths: list[Path]) -> Dictionary:
    """Read the dictionaries of both sides, which must be the same.

    Raises:
        UserError: They are not, or one is missing or malformed.
    """
    src, tgt = map(read_dictionary, paths)
    if src != tgt:
        raise UserError(
            f"{paths[0]} and {paths[1]} differ; only a model with one dictionary for both sides "
            "(--joined-dictionary) can be imported"
        )
    return src
