"""nmtkit import."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nmtkit.cli.hints import hub_hint
from nmtkit.cli.inputs import check_output
from nmtkit.config.loading import validate
from nmtkit.rendering.show import print_path
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import write_manifest
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language, is_group
from nmtkit.utils.section import Section

if TYPE_CHECKING:
    from nmtkit.interchange.imported import ImportedModel, TextPreparation


class _Corpus(Section):
    """The keys of [corpus] that --set can have."""

    tokenizer: Literal["moses", "none"] | None = None
    normalize_punctuation: bool = False
    aggressive_hyphens: bool | None = None


class _Recipe(Section):
    corpus: _Corpus = _Corpus()


def import_model(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="Folder of a MarianMT model, such as OPUS-MT, or a fairseq checkpoint.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="New folder for the bundle.", show_default=False)
    ],
    codes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For fairseq: BPE codes of subword-nmt or fastBPE, or a sentencepiece model.",
        ),
    ] = None,
    lang: Annotated[
        str | None,
        typer.Option(
            metavar="LANG",
            help="Source and target language, such as en-de (default for MarianMT: read from its "
            "folder).",
        ),
    ] = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="The model expects lowercase input.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Set the text processing, as in a recipe: corpus.tokenizer=moses or none "
            "(default for sentencepiece), corpus.normalize_punctuation=true, and "
            "corpus.aggressive_hyphens=true or false (default: detected in the dictionary).",
        ),
    ] = None,
) -> None:
    """Convert a MarianMT (OPUS-MT) or fairseq model to a bundle.

    Example: nmtkit import opus-mt-en-de bundle
    """
    # The checkpoint may be large, so mistakes in options are reported before it is read.
    langs = None if lang is None else _parse_langs(lang)
    corpus = validate(_Recipe, {}, overrides or []).corpus
    check_output("DIR", folder)
    from nmtkit.decoding.bundle import write_bundle  # imports the readers of text
    from nmtkit.interchange.imported import TextPreparation

    preparation = TextPreparation(**corpus.model_dump(), lowercase=lowercase)
    # The folder is published whole or not at all.
    with whole_folder(folder) as draft:
        imported = _read_model(model, codes, langs, preparation)
        imported.save_text(draft)
        write_bundle(draft, [], imported.description, imported.decoding, imported.weights)
        depends_on = {imported.program: imported.hashes}
        write_manifest(draft, {"kind": "import", "depends_on": depends_on})
    print_path(folder)


def _parse_langs(pair: str) -> tuple[Language, Language]:
    """Return the languages of --lang, by whose rules text is processed.

    Raises:
        UserError: It is not a pair, or one of the two is a group of languages.
    """
    langs = Language.parse_pair(pair)
    for language in langs:
        if is_group(language):
            raise UserError(
                f"--lang {pair}: {language} is a group of languages; pass the language that you "
                "want to translate, such as --lang en-de"
            )
    return langs


def _read_model(
    model: Path,
    codes: Path | None,
    langs: tuple[Language, Language] | None,
    preparation: "TextPreparation",
) -> "ImportedModel":
    """Read a MarianMT model from a folder, or a fairseq checkpoint from a file.

    Args:
        model: The folder or file.
        codes: The value of --codes, for fairseq.
        langs: The languages that the user named; fairseq needs them.
        preparation: The processing of text before the subwords.

    Raises:
        UserError: The options do not fit the model, or it cannot be read.
    """
    from nmtkit.interchange.fairseq import import_fairseq  # imports torch
    from nmtkit.interchange.marian_import import import_marian

    if model.is_dir():
        if codes is not None:
            raise UserError(
                f"--codes is for fairseq checkpoints, and {model} is a folder; pass the "
                "checkpoint in it, or omit --codes to import a MarianMT model"
            )
        return import_marian(model, langs, preparation)
    if codes is None or langs is None:
        # The name of a folder may be misspelt.
        if not model.exists():
            raise UserError(f"{model} does not exist; correct the path{hub_hint(str(model))}")
        raise UserError(
            f"{model} is not a folder; to import a fairseq checkpoint, pass --codes and --lang"
        )
    return import_fairseq(model, codes, langs, preparation)
