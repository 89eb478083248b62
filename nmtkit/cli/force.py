"""nmtkit force."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import find_bundles
from nmtkit.config.settings import RUNS, Settings
from nmtkit.decoding.output_formats import Format, engine_for_format
from nmtkit.utils.errors import UserError


def force(
    src: Annotated[Path, typer.Argument(metavar="SRC", help="Source text: a file or a pipe.")],
    tgt: Annotated[Path, typer.Argument(metavar="TGT", help="Translation of SRC, line by line.")],
    # The model
    bundles: opt.Bundles = [],  # noqa: B006 - typer copies it
    recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    # Output
    output_format: Annotated[
        Format,
        typer.Option(
            "--format", metavar="FORMAT", help="Output format: text, json, fairseq or pharaoh."
        ),
    ] = "text",
    align: opt.Alignment = False,
    plain: opt.Plain = False,
    # Settings of the machine
    device: opt.Device = "auto",
    engine: opt.Engine = None,
) -> None:
    """Compute log-probabilities of existing translations.

    Example: nmtkit force source.en translation.de --recipe demo
    """
    if output_format == "moses":
        raise UserError(
            "force does not support --format moses, an n-best list; use text, json, fairseq or "
            "pharaoh"
        )
    align = align or output_format == "pharaoh"
    engine = engine_for_format(output_format, engine, align=align)
    bundles = find_bundles(bundles, recipe, overrides, Settings(runs_dir, device=device))
    from nmtkit.decoding.force_files import force_files  # imports the readers of text
    from nmtkit.store.artifacts import open_directory
    from nmtkit.store.code_version import warn_of_other_code
    from nmtkit.translator import Translator

    translator = Translator(*bundles, device=device, engine=engine)
    warn_of_other_code(open_directory(bundle) for bundle in bundles)
    for line in force_files(translator, src, tgt, output_format, align=align, plain=plain):
        # typer.echo would remove escape sequences of the text.
        print(line)
