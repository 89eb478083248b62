"""nmtkit import."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli import options as opt
from nmtkit.config.loading import validate
from nmtkit.config.recipe import PAPERS_DECODING
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import write_manifest
from nmtkit.utils.language import Language
from nmtkit.utils.section import Section


class _Corpus(Section):
    """The keys of [corpus] that --set can have."""

    tokenizer: Literal["moses", "none"] | None = None
    normalize_punctuation: bool = False
    aggressive_hyphens: bool | None = None


class _Recipe(Section):
    corpus: _Corpus = _Corpus()


def import_model(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="A fairseq checkpoint.", show_default=False),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder.", show_default=False)
    ],
    codes: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="BPE codes of subword-nmt or fastBPE, or a sentencepiece model."
        ),
    ],
    lang: Annotated[str, typer.Option(metavar="LANG", help="The languages, such as en-de.")],
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="The model expects lowercase input.")
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Text processing, as in a recipe: corpus.tokenizer=moses or none (default for "
            "sentencepiece), corpus.normalize_punctuation=true, and "
            "corpus.aggressive_hyphens=true or false (default: detected in the dictionary).",
        ),
    ] = None,
) -> None:
    """Convert a fairseq model to a bundle.

    Example: nmtkit import model.pt bundle --codes bpecodes --lang en-de
    """
    # Mistakes in options are reported before the checkpoint, which may be large, is read.
    langs = Language.pair_of(lang)
    corpus = validate(_Recipe, {}, overrides or []).corpus
    opt.check_output("DIR", folder)
    from nmtkit.decoding.bundle import write_bundle
    from nmtkit.interchange.fairseq_import import TextPreparation, import_fairseq  # imports torch

    preparation = TextPreparation(**corpus.model_dump(), lowercase=lowercase)
    # The folder is published whole or not at all.
    with whole_folder(folder) as draft:
        model = import_fairseq(checkpoint, codes, langs, preparation)
        model.save_text(draft)
        write_bundle(draft, [], model.description, PAPERS_DECODING, model.weights)
        write_manifest(draft, {"kind": "import", "depends_on": {"fairseq": model.hashes}})
    opt.print_path(folder)
