"""nmtkit export."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.interchange.export import ExportFormat, push_to_hub


def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.", show_default=False)],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder.", show_default=False)
    ],
    format_: Annotated[
        ExportFormat,
        typer.Option("--format", metavar="FORMAT", help="ctranslate2 or huggingface."),
    ],
    repository: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="OWNER/NAME",
            help="Also upload it to this repository of the Hugging Face hub, which is private if "
            "it is new; the token is that of `hf auth login`, or HF_TOKEN.",
        ),
    ] = None,
) -> None:
    """Convert a bundle for CTranslate2 or Hugging Face.

    Example: nmtkit export BUNDLE exported --format huggingface
    """
    opt.check_output("DIR", folder)
    from nmtkit.stages.export import export_bundle  # imports torch

    export_bundle(bundle, folder, format_, repository)
    opt.print_path(folder)
    if repository is not None:
        push_to_hub(folder, repository)
