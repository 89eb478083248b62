"""nmtkit export."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import (
    check_output,
    check_unused,
    find_bundle,
    load_pipeline,
    pipeline_inputs,
    recipe_names,
)
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import print_path
from nmtkit.utils.errors import UserError

MODEL_FORM = "nmtkit export BUNDLE DIR --format huggingface"
ARGOS_FORM = "nmtkit export BUNDLE FILE --format argos"
TEXT_FORM = "nmtkit export RECIPE DIR --format text"


def export(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[SOURCE] DIR",
            help="SOURCE is a bundle, or a recipe with --format text; omit it if --recipe is used. "
            "DIR is a new folder, for argos a new file such as en_de.argosmodel.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
    format_: Annotated[
        Literal["argos", "ctranslate2", "huggingface", "text"],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="For a model: ctranslate2, huggingface, or argos (one file, which Argos Translate "
            "and LibreTranslate install). For a prepared corpus: text (subwords, as fairseq, "
            "joeynmt and other toolkits read them).",
        ),
    ],
    repository: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="OWNER/NAME",
            help="Also upload the model to this repository of the Hugging Face hub. A new "
            "repository is private. The token is taken from `hf auth login` or HF_TOKEN.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="RECIPE",
            help="Export this recipe's averaged model, or with --format text its corpus.",
            autocompletion=recipe_names,
        ),
    ] = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
) -> None:
    """Export a model for other libraries, or a corpus for other toolkits.

    Example: nmtkit export --recipe demo exported --format huggingface
    """
    # The new folder comes last, as in `cp`.
    sources = names[:-1]
    folder = Path(names[-1])
    if len(sources) + (recipe is not None) != 1:
        form = TEXT_FORM if format_ == "text" else MODEL_FORM
        found = ", ".join(names)
        if recipe is not None:
            found += f" and --recipe {recipe}"
        raise UserError(f"expected one source and a new folder, as in `{form}`; got {found}")
    settings = Settings(runs_dir, mirror=mirror)
    if format_ == "text":
        check_unused({"--push": repository}, TEXT_FORM, MODEL_FORM)
        recipe = recipe or sources[0]
        if Path(recipe).is_dir():
            raise UserError(
                f"{recipe} is a folder, but --format text exports the prepared corpus of a recipe; "
                f"pass the recipe, as in `{TEXT_FORM}`"
            )
        pipeline = load_pipeline(recipe, overrides, settings)
        check_output("DIR", folder, pipeline_inputs(pipeline))
        from nmtkit.export.exported_text import export_text  # imports the readers of text

        export_text(pipeline, folder)
        print_path(folder)
        return

    check_unused({"--mirror": mirror}, MODEL_FORM, TEXT_FORM)
    bundle = find_bundle([Path(source) for source in sources], recipe, overrides, settings)
    check_output("DIR", folder)
    if format_ == "argos":
        check_unused({"--push": repository}, ARGOS_FORM, MODEL_FORM)
        from nmtkit.export.argos import export_argos  # imports torch

        export_argos(bundle, folder)
        print_path(folder)
        return

    from nmtkit.export.exported_model import export_bundle, push_to_hub  # imports torch

    export_bundle(bundle, folder, format_, repository)
    # The folder is complete before anything is uploaded.
    print_path(folder)
    if repository is not None:
        push_to_hub(folder, repository)
