"""nmtkit export."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.interchange.export import ExportFormat, push_to_hub
from nmtkit.utils.errors import UserError


def export(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="[BUNDLE] DIR",
            help="A bundle, unless --recipe names the model; and a new folder.",
            show_default=False,
        ),
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
    # The model, unless it is a bundle
    recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
) -> None:
    """Convert a bundle for CTranslate2 or Hugging Face.

    Example: nmtkit export --recipe demo exported --format huggingface
    """
    # The new folder comes last, as in `cp`.
    *bundles, folder = folders
    if recipe is None and not bundles:
        raise UserError(f"no model is named; pass --recipe RECIPE, or a bundle before {folder}")
    bundle = opt.find_bundle(bundles, recipe, overrides, Settings(runs_dir))
    opt.check_output("DIR", folder)
    from nmtkit.stages.export import export_bundle  # imports torch

    export_bundle(bundle, folder, format_, repository)
    # The folder is complete before anything is uploaded.
    opt.print_path(folder)
    if repository is not None:
        push_to_hub(folder, repository)
