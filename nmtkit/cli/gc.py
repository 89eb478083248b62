"""nmtkit gc: free what no recipe needs any more, and nothing else."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from nmtkit.cli.known_runs import (
    Made,
    disk_bytes,
    made,
    made_grid,
    named_chain,
    recorded,
    upstream_of,
)
from nmtkit.cli.options import chain_of, command
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance
from nmtkit.recipe_file import bundled_recipes
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import Code
from nmtkit.store import MANIFEST, Store

Places = set[tuple[str, str]]  # stages and fingerprints
GONE, NEEDED = "gone", "needed"
Told = list[tuple[Made, str]]  # each with the reason
# Of what is not published: whether it is kept without --drafts and with it, and why.
UNPUBLISHED = {
    "being made": (True, True, "another process is making it"),
    "stopped": (True, False, "a stopped run resumes it; --drafts frees it"),
    "set aside": (True, False, "damaged checkpoints; --drafts frees them"),
    "damaged": (True, True, "damaged; delete it yourself"),
    "being freed": (False, False, "an earlier gc was stopped"),
}


@command("nmtkit gc --keep demo")
def gc(
    machine: Machine,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Keep this run too: a recipe, or a folder."),
    ] = None,
    drafts: Annotated[
        bool, typer.Option("--drafts", help="Also free what stopped runs left.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Free the artifacts that no recipe needs, after asking."""
    freed, kept = find_garbage(machine, keep or [], drafts=drafts)
    tables = [("kept", kept), ("to be freed", freed)]
    grids = [made_grid(title, found, "why") for title, found in tables if found]
    show(Form(), None, [*grids, *([] if freed else ["nothing to free"])])
    if not freed:
        return
    size = decimal(disk_bytes([Path(each.path) for each, _ in freed], freed=True))
    if not yes:
        if not sys.stdin.isatty():
            raise UserError(f"nothing was freed; add --yes to free these {size}")
        typer.confirm(f"Free {size}?", abort=True)
    store, shown = Store(machine.runs_dir), {each.path for each, _ in freed}
    with store.freeing():
        still, _ = find_garbage(machine, keep or [], drafts=drafts)
        for each, _ in reversed(still):  # results before what they were made from
            if each.path in shown:
                store.free(Path(each.path))
    typer.echo(f"freed {size}")


def find_garbage(machine: Machine, keep: Sequence[str], *, drafts: bool) -> tuple[Told, Told]:
    """Return what can be freed, and what is kept although no recipe may need it, in their order.

    A recipe needs what it would find today, and what it would find with code of nmtkit that
    `--remake` made something with. The recipes are those that come with nmtkit, and those
    that the artifacts themselves name, with the overrides that they were run with. Where such a
    recipe is gone, it may have been renamed, so that the others in its folder count too; where its
    folder is gone, it may have been moved, or be on a disk that is not mounted.

    Args:
        keep: runs that are needed besides, as one types them, or paths of artifacts.
        drafts: whether drafts of stopped runs and damaged checkpoints are to be freed.

    Raises:
        UserError: one of `keep` does not exist.
    """
    store = Store(machine.runs_dir)
    there = [(each, recorded(Path(each.path)).run) for each in made(machine.runs_dir)]
    codes = list(_remade(store))
    needs = {run.run: _needs(run, machine, codes) for _, run in there if run}
    needed = Places().union(*(each for each in needs.values() if isinstance(each, set)))
    for recipe in [path.stem for path in bundled_recipes()] + _renamed(run for _, run in there):
        # A download has to come for its hash to be known, or it is another TOML file.
        with suppress(UserError):
            needed |= _needs_of(chain_of(recipe, [], machine), codes)
    for named in keep:
        if (Path(named) / MANIFEST).is_file():
            needed.add(_place(Path(named)))
        else:
            needed |= _needs_of(named_chain(named, machine), codes)
    decided = [
        (each, *_decide(each, run, needs[run.run] if run else Places(), drafts=drafts))
        for each, run in there
    ]
    for each, is_kept, _ in decided:
        if is_kept:
            needed |= {(each.stage, each.fingerprint), *upstream_of(Path(each.path)).items()}
    _close(needed, store)
    freed, kept = [], []
    for each, is_kept, why in decided:
        if is_kept and why != NEEDED:
            kept.append((each, why))
        elif each.state != "published" or (each.stage, each.fingerprint) not in needed:
            freed.append((each, why))
    return freed, kept


def _decide(
    each: Made, run: Provenance | None, needs: Places | str, *, drafts: bool
) -> tuple[bool, str]:
    """Return whether a folder is kept if nothing else needs it, and why."""
    if each.state != "published":
        *is_kept, why = UNPUBLISHED[each.state]
        return is_kept[drafts], why
    if run is None:
        return True, "it does not say which recipe it is of"
    if needs == GONE:
        return False, f"its recipe {run.recipe} is gone"
    if isinstance(needs, str):
        return True, f"its recipe cannot be read: {needs}"
    if (each.stage, each.fingerprint) in needs:
        return True, NEEDED
    return False, "its recipe or its texts have changed since"


def _remade(store: Store) -> Iterator[Code]:
    """Yield each code that `--remake` made an artifact with, and none."""
    yield {}
    for stage in STAGES:
        for artifact in store.all(stage):
            if "code" in artifact.manifest.depends_on:
                yield artifact.manifest.code


def _needs(run: Provenance, machine: Machine, codes: Sequence[Code]) -> Places | str:
    """Return what a recorded run would find today, or why that is not known."""
    path = Path(run.recipe)
    if path.is_absolute() and not path.exists():
        if path.parent.is_dir():
            return GONE
        return f"there is no folder {path.parent}; was it moved?"
    try:
        return _needs_of(chain_of(run.recipe, run.overrides, machine), codes)
    except UserError as error:
        return str(error)


def _renamed(runs: Iterable[Provenance | None]) -> list[str]:
    """Return the recipes that are where a recorded one was."""
    paths = (Path(run.recipe) for run in runs if run is not None)
    folders = {path.parent for path in paths if path.is_absolute() and not path.exists()}
    return [str(recipe) for folder in folders for recipe in folder.glob("*.toml")]


def _needs_of(chain: Chain, codes: Sequence[Code]) -> Places:
    places = Places()
    for code in codes:
        of_code = copy(chain)
        of_code.code = code
        places |= {(stage, of_code.fingerprint(stage)) for stage in STAGES}
        scores = {**of_code.depends_on("score"), "seed": None}  # those of any SACREBLEU_SEED
        for artifact in chain.store.all("score"):
            if {**artifact.manifest.depends_on, "seed": None} == scores:
                places.add(("score", artifact.path.name))
    return places.union(_place(bundle.artifact.path) for bundle in chain.bundles.values())


def _place(path: Path) -> tuple[str, str]:
    return path.resolve().parent.name, path.resolve().name


def _close(needed: Places, store: Store) -> None:
    """Add what the needed artifacts were made from."""
    left = list(needed)
    while left:
        new = set(upstream_of(store.place(*left.pop())).items()) - needed
        needed |= new
        left += new
