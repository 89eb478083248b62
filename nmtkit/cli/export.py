"""nmtkit export."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.interchange.export import push_to_hub
from nmtkit.utils.errors import UserError

MODEL_FORM = "nmtkit export BUNDLE DIR --format huggingface"
TEXT_FORM = "nmtkit export RECIPE DIR --format text"


def export(
    source: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE_OR_RECIPE",
            help="A bundle, to export its model; with --format text a recipe, to export its "
            "prepared corpus.",
            autocompletion=opt.recipe_names,
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder.", show_default=False)
    ],
    format_: Annotated[
        Literal["ctranslate2", "huggingface", "text"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Of a bundle: ctranslate2 or huggingface. Of a recipe: text, that is the corpus "
            "in subwords, as fairseq, joeynmt and others read it.",
        ),
    ],
    repository: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="OWNER/NAME",
            help="Also upload the model to this repository of the Hugging Face hub, which is "
            "private if it is new; the token is that of `hf auth login`, or HF_TOKEN.",
        ),
    ] = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
) -> None:
    """Export a bundle for other libraries, or a corpus for other toolkits.

    Example: nmtkit export BUNDLE exported --format huggingface
    """
    if format_ == "text":
        opt.check_unused({"--push": repository}, TEXT_FORM, MODEL_FORM)
        if Path(source).is_dir():
            raise UserError(
                f"{source} is a folder, but --format text exports the prepared corpus of a recipe; "
                f"pass the recipe, as in `{TEXT_FORM}`"
            )
        pipeline = opt.load_pipeline(source, overrides, Settings(runs_dir, mirror=mirror))
        opt.check_output("DIR", folder, opt.pipeline_inputs(pipeline))
        from nmtkit.stages.export_text import export_text  # imports what reads text

        export_text(pipeline, folder)
        opt.print_path(folder)
        return

    recipe_options = {
        "--set": overrides,
        "--runs-dir": None if runs_dir == RUNS else runs_dir,
        "--mirror": mirror,
    }
    opt.check_unused(recipe_options, MODEL_FORM, TEXT_FORM)
    bundle = Path(source)
    if not bundle.is_dir():
        raise UserError(
            f"there is no folder {source}, and --format {format_} exports a bundle; pass the "
            "folder that `nmtkit average` prints"
        )
    opt.check_output("DIR", folder)
    from nmtkit.stages.export import export_bundle  # imports torch

    export_bundle(bundle, folder, format_, repository)
    opt.print_path(folder)
    if repository is not None:
        push_to_hub(folder, repository)
