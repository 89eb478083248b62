"""nmtkit gc."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, show
from nmtkit.runs.freeing import decide, free
from nmtkit.runs.listing import artifacts_grid, disk_bytes
from nmtkit.utils.errors import Stopped, UserError
from nmtkit.utils.interrupts import EXIT_CODE, was_interrupted


def gc(
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Also keep this run: a recipe, or a folder."),
    ] = None,
    run: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Delete the artifacts of this run instead: a recipe, or 'RECIPE --set "
            "SECTION.KEY=VALUE', as `nmtkit runs` prints it. Artifacts that other runs need are "
            "kept.",
        ),
    ] = None,
    drafts: Annotated[
        bool, typer.Option("--drafts", help="Also delete the unfinished artifacts of stopped runs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without confirmation.")] = False,
    runs_dir: opt.RunsDir = RUNS,
) -> None:
    """Delete artifacts that no recipe needs, after confirmation.

    Example: nmtkit gc --keep demo
    """
    settings = Settings(runs_dir)
    kept_runs = keep or []
    removed_runs = run or []
    decisions = decide(settings, Path.cwd(), kept_runs, drafts=drafts, runs=removed_runs)
    # Everything is shown before anything is deleted.
    grids = []
    for title, is_freed in (("kept", False), ("to be deleted", True)):
        rows = []
        for decision in decisions:
            if decision.is_freed == is_freed:
                rows.append((decision.artifact, decision.reason))
        if rows:
            grids.append(artifacts_grid(title, rows, "why"))
    show(Form(), None, grids)

    paths = [Path(decision.artifact.path) for decision in decisions if decision.is_freed]
    if not paths:
        hint = "" if removed_runs else "; --run RUN deletes the artifacts of one run"
        typer.echo(f"nothing to delete{hint}")
        return
    size = decimal(disk_bytes(paths))
    # Without a terminal, there is no user to ask: a script must pass --yes.
    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise UserError(f"nothing was deleted; pass --yes to delete {size}")
        try:
            is_confirmed = typer.confirm(f"Delete {size}?")
        except typer.Abort:  # Ctrl-C or Ctrl-D, in the line of the question
            typer.echo(err=True)
            if was_interrupted():
                raise Stopped("stopped; nothing was deleted", exit_code=EXIT_CODE) from None
            is_confirmed = False
        if not is_confirmed:
            raise UserError("nothing was deleted")
    # `free` decides a second time: another process may need an artifact by now.
    free(paths, settings, Path.cwd(), kept_runs, drafts=drafts, runs=removed_runs)
    typer.echo(f"deleted {size}")
