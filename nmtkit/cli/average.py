"""nmtkit average."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import (
    check_output,
    check_unused,
    file_or_stream,
    load_pipeline,
    recipe_names,
)
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import print_path
from nmtkit.utils.errors import UserError

RECIPE_FORM = "nmtkit average RECIPE"
FOLDERS_FORM = "nmtkit average DIR DIR --output DIR"


def average(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="Recipe whose checkpoints are averaged; or, with --output, folders of bundles "
            "and checkpoints of the same model.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
    overrides: opt.Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            parser=file_or_stream,
            help="Write the average of the folders NAME as a bundle to this folder.",
        ),
    ] = None,
    runs_dir: opt.RunsDir = RUNS,
    force: opt.Force = False,
) -> None:
    """Average checkpoints into a bundle, ready to translate.

    Example: nmtkit average demo
    """
    # Any bundles and checkpoints
    if output is not None:
        other_runs = runs_dir if runs_dir != RUNS else None
        recipe_options = {"--set": overrides, "--runs-dir": other_runs, "--force": force}
        check_unused(recipe_options, FOLDERS_FORM, RECIPE_FORM)
        check_output("--output", output)
        from nmtkit.stages.average import average_folders  # imports torch

        average_folders([Path(name) for name in names], output)
        print_path(output)
        return

    # The last checkpoints of a recipe
    if len(names) > 1:
        raise UserError(
            f"expected one recipe, got {len(names):,} names; to average folders, pass --output DIR"
        )
    settings = Settings(runs_dir)
    pipeline = load_pipeline(names[0], overrides, settings, ["average"] if force else [])
    from nmtkit.stages import average as stage  # imports torch

    print_path(stage.run(pipeline).path)
