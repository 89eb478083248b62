"""nmtkit verify."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.verification import verify_folder, verify_recipe
from nmtkit.store.manifests import MANIFEST
from nmtkit.utils.errors import UserError


def verify(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A recipe, or the folder of an artifact.",
            autocompletion=opt.recipe_names,
            show_default=False,
        ),
    ],
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Verify the checksums of an artifact and all its inputs.

    Example: nmtkit verify demo
    """
    settings = Settings(runs_dir, mirror=mirror)
    path = Path(run)
    if path.is_dir():
        if overrides:
            raise UserError(
                f"--set cannot be used with a folder ({run}): its artifact has its values already"
            )
        if not (path / MANIFEST).exists():
            raise UserError(f"{run} has no {MANIFEST}; pass a recipe, or the folder of an artifact")
        verified = list(verify_folder(path, settings))
    else:
        verified = list(verify_recipe(opt.load_pipeline(run, overrides, settings)))

    rows = []
    differences = []
    for part in verified:
        rows.append((part.what, "no" if part.differences else "yes", part.path))
        differences += part.differences
    grid = Grid.of("", ("what", "as published?", "where"), rows, 3)
    show(Form(as_json, table), verified, [grid, *differences])
    if differences:
        count = "1 difference" if len(differences) == 1 else f"{len(differences):,} differences"
        raise UserError(f"{run} is not as it was published: {count}")
