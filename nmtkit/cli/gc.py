"""nmtkit gc: free the artifacts that no recipe needs, and nothing else."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from nmtkit.cli.options import command, flag, option
from nmtkit.config.settings import Settings
from nmtkit.reporting.artifacts import artifacts_grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.listing import disk_bytes
from nmtkit.stages.needed import Decision, decide
from nmtkit.store.artifacts import Store
from nmtkit.utils.errors import UserError


@command("nmtkit gc --keep demo")
def gc(
    settings: Settings,
    keep: Annotated[
        list[str] | None, option("RUN", "Keep this run too: a recipe, or a folder.")
    ] = None,
    drafts: Annotated[bool, flag("Also free what stopped runs left.", "--drafts")] = False,
    yes: Annotated[bool, flag("Do not ask.", "--yes")] = False,
) -> None:
    decisions = decide(settings, Path.cwd(), keep or [], drafts=drafts)
    kept = [decision for decision in decisions if not decision.is_freed]
    freed = [decision for decision in decisions if decision.is_freed]
    tables = []
    for title, part in (("kept", kept), ("to be freed", freed)):
        if part:
            remarks = [(decision.artifact, decision.reason) for decision in part]
            tables.append(artifacts_grid(title, remarks, "why"))
    show(Form(), None, tables)
    if not freed:
        typer.echo("nothing to free")
        return
    size = decimal(disk_bytes([Path(decision.artifact.path) for decision in freed]))
    if not yes:
        if not (sys.stdin and sys.stdin.isatty()):
            raise UserError(f"nothing was freed; add --yes to free these {size}")
        typer.confirm(f"Free {size}?", abort=True)
    _free(settings, keep or [], freed, drafts=drafts)
    typer.echo(f"freed {size}")


def _free(settings: Settings, keep: list[str], shown: list[Decision], *, drafts: bool) -> None:
    """Free the artifacts that were shown and are still not needed, while none can be built."""
    shown_paths = {decision.artifact.path for decision in shown}
    store = Store(settings.runs_dir)
    with store.freeing():
        decisions = decide(settings, Path.cwd(), keep, drafts=drafts)
        for decision in reversed(decisions):  # artifacts before what they were built from
            if decision.is_freed and decision.artifact.path in shown_paths:
                store.free(Path(decision.artifact.path))
