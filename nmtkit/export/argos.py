"""A bundle as a package of Argos Translate (https://github.com/argosopentech/argos-translate).

LibreTranslate installs these packages, too. A package is a zip archive of one folder: metadata, a
model of CTranslate2, and a model of sentencepiece that splits and joins text.
"""

import json
import zipfile
from pathlib import Path

from nmtkit import __version__
from nmtkit.corpus.sentencepiece_subword import MODEL_FILE, SentencePieceSubword
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.export.exported_model import write_model_of_bundle
from nmtkit.export.model_card import bundle_origin, write_card
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.store.files import temporary_folder, whole_file
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

ENDING = ".argosmodel"  # LibreTranslate installs no other files
VERSION = "1.0"  # of the package
# The version of Argos Translate that the package is for: the first that splits the sentences of a
# package without a model for this.
ARGOS_VERSION = "1.10"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes at any time


def export_argos(path: Path, file: Path) -> None:
    """Write the model of a bundle as a package.

    Args:
        path: The bundle.
        file: A new file.

    Raises:
        UserError: The file exists or has another ending, or Argos Translate would read or write
            another text than nmtkit.
    """
    if file.suffix != ENDING:
        raise UserError(f"{file} does not end in {ENDING}; pass a name such as en_de{ENDING}")
    if file.exists():
        raise UserError(f"{file} already exists; pass the path of a new file")
    bundle = open_bundle(path)
    warn_of_other_code([bundle.artifact])
    check_reads_plain_text(path, bundle)
    languages = [Language.of(bundle.text.src.lang), Language.of(bundle.text.tgt.lang)]
    codes = [argos_code(language) for language in languages]
    # The folder of an installed package. Installing another version replaces the files in it.
    name = f"translate-{codes[0]}_{codes[1]}-nmtkit"

    with temporary_folder() as folder:
        model = folder / "model"
        model.mkdir()
        write_model_of_bundle(model, "ctranslate2", bundle)
        # Argos Translate passes the subwords of a sentence without an end symbol.
        config = json.loads((model / "config.json").read_bytes())
        config["add_source_eos"] = True
        (model / "config.json").write_text(json.dumps(config), encoding="utf-8", newline="\n")
        bundle.text.subword.save(folder)
        origin = bundle_origin(bundle.artifact.path.resolve())
        write_card(folder, bundle, "argostranslate", origin, file.name, repository=None)
        metadata = {
            "package_version": VERSION,
            "argos_version": ARGOS_VERSION,
            "from_code": codes[0],
            "from_name": languages[0].english_name,
            "to_code": codes[1],
            "to_name": languages[1].english_name,
            "made_by": f"nmtkit {__version__}",
        }
        text = json.dumps(metadata, indent=2, ensure_ascii=True)
        (folder / "metadata.json").write_text(text, encoding="utf-8", newline="\n")

        with whole_file(file) as draft, zipfile.ZipFile(draft, "w") as archive:
            for member in sorted(folder.rglob("*")):
                if member.is_file():
                    info = zipfile.ZipInfo(f"{name}/{member.relative_to(folder)}", ZIP_DATE)
                    with archive.open(info, "w", force_zip64=True) as target:
                        target.write(member.read_bytes())


def argos_code(language: Language) -> str:
    """Return the code of a language in Argos Translate, which has its own for two variants."""
    if language.code == "zh" and language.script == "Hant":
        return "zt"
    return "pb" if language.canonical == "pt_BR" else language.code


def check_reads_plain_text(path: Path, bundle: Bundle) -> None:
    """Refuse a model whose text Argos Translate would process otherwise.

    Args:
        path: The bundle, for the message.

    Raises:
        UserError: It does not have a single sentencepiece model of plain text.
    """
    # Argos Translate also reads BPE codes, but it then always normalizes punctuation, and
    # tokenizes with sacremoses, whose tokens and text differ from ours.
    subword = bundle.text.subword
    is_plain = isinstance(subword, SentencePieceSubword) and subword.counts is None
    for side in (bundle.text.src, bundle.text.tgt):
        if side.tokenizer != "none" or side.lowercase or side.normalize_punctuation:
            is_plain = False
    if not is_plain:
        raise UserError(
            f"{path} cannot be used by Argos Translate: it needs a single {MODEL_FILE} of plain "
            "text, as a recipe of `nmtkit new` trains; export with --format ctranslate2"
        )
