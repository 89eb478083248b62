"""nmtkit gc: free what no recipe needs any more, and nothing else."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from nmtkit.cli.options import chain_of, command, flag, option
from nmtkit.cli.runs import Made, disk_bytes, made, made_grid, recorded, with_sources
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance, split_overrides
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.store import MANIFEST, Artifact, Store, open_directory, strays
from nmtkit.training.metrics import METRICS

Places = set[tuple[str, ...]]  # stages and fingerprints
Told = list[tuple[Made, str]]  # each with the reason
# What stages write to a folder, published or not; anything else there is somebody's own.
OURS = re.compile(
    r"((temporary/)?[^/]+\.jsonl|((temporary|checkpoints|step-\d{8}[^/]*)/)*(src|tgt|codes\.bpe"
    r"|vocabulary\.tsv|sentencepiece\.model|diverged\.txt|(train|dev)\.(src|tgt)\.(ids|offsets|txt)"
    r"|(manifest|measurements|model|optimizer|progress|metrics|journal|note|averaged|decoding|counts"
    r"|tokenization|samples|scores|(train|dev)\.(src|tgt))\.(json|jsonl|safetensors|partial)))"
    r"|[^/]+/((source|hypotheses|reference(\.\d+)?)\.txt|ratings\.json)"
)
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
        list[str] | None, option("RUN", "Keep this run too: a recipe, or a folder.")
    ] = None,
    drafts: Annotated[bool, flag("Also free what stopped runs left.", "--drafts")] = False,
    yes: Annotated[bool, flag("Do not ask.", "--yes")] = False,
) -> None:
    is_asked = not yes and bool(sys.stdin and sys.stdin.isatty())
    freed, kept = find_garbage(machine, keep or [], drafts=drafts, is_asked=is_asked)
    tables = [("kept", kept), ("to be freed", freed)]
    show(Form(), None, [made_grid(title, found, "why") for title, found in tables if found])
    if not freed:
        typer.echo("nothing to free")
        return
    size = decimal(disk_bytes([Path(each.path) for each, _ in freed]))
    if not yes and not is_asked:
        raise UserError(f"nothing was freed; add --yes to free these {size}")
    if is_asked:
        typer.confirm(f"Free {size}?", abort=True)
    store, shown = Store(machine.runs_dir), {each.path for each, _ in freed}
    with store.freeing():
        still, _ = find_garbage(machine, keep or [], drafts=drafts, is_asked=is_asked)
        for each, _ in reversed(still):  # results before what they were made from
            if each.path in shown:
                store.free(Path(each.path))
    typer.echo(f"freed {size}")


def find_garbage(
    machine: Machine, keep: Sequence[str], *, drafts: bool, is_asked: bool = True
) -> tuple[Told, Told]:
    """Return what can be freed, and what is kept although no recipe may need it, in their order.

    The recipes are those that the artifacts name, with their overrides, those beside them and in
    the present folder, and those to `keep`. Whether one that is gone was moved, a user `is_asked`.
    """
    store = Store(machine.runs_dir)
    there = [(each, recorded(Path(each.path)).run) for each in made(store.folder)]
    published = [artifact for stage in STAGES for artifact in store.all(stage)]
    runs = {run.run: run for each, run in there if run and each.state != "being freed"}
    needed, unread = Places(), {}
    for name, run in runs.items():
        try:
            needed |= _needs(chain_of(run.recipe, run.overrides, machine), published)
        except UserError as error:
            unread[name] = _without(Path(run.recipe), error, is_asked)
    own = [run for run in runs.values() if Path(run.recipe).is_absolute()]
    moved = {(), *(run.overrides for run in own if not Path(run.recipe).exists())}
    for folder in {Path.cwd(), *(Path(run.recipe).parent for run in own)}:
        for beside, overrides in product(folder.glob("*.toml"), moved):
            with suppress(UserError):  # it is another TOML file
                needed |= _needs(chain_of(str(beside), overrides, machine), published)
    for named in keep:
        if (Path(named) / MANIFEST).is_file():
            needed.add(Path(named).resolve().parts[-2:])
        else:
            needed |= _needs(chain_of(*split_overrides(named), machine), published)
    needed |= _sources([store.place(*each) for each in needed], store)
    decided = [
        (each, *_decide(each, run, unread, drafts=drafts))
        for each, run in there
        if Path(each.path).parts[-2:] not in needed
    ]
    kept = [(each, why) for each, is_kept, why in decided if is_kept]
    needed |= _sources([Path(each.path) for each, _ in kept], store)
    freed = [(each, why) for each, _, why in decided if Path(each.path).parts[-2:] not in needed]
    return freed, kept


def _needs(chain: Chain, published: Sequence[Artifact]) -> Places:
    """Return what a run would find, whatever code and whatever SACREBLEU_SEED made it."""
    needed = Places((stage, chain.fingerprint(stage)) for stage in STAGES)
    for stage in STAGES:
        wanted = _of_recipe(chain.depends_on(stage))
        for artifact in published:
            then = artifact.manifest.depends_on
            if (
                artifact.manifest.kind == stage
                and _of_recipe(then) == wanted
                and needed.issuperset(then.get("upstream", {}).items())
            ):
                needed.add((stage, artifact.path.name))
    bundles = (bundle.artifact.path.resolve() for bundle in chain.bundles.values())
    return needed.union(path.parts[-2:] for path in bundles)


def _of_recipe(depends_on: Mapping[str, Any]) -> dict[str, Any]:
    others = ("code", "seed", "upstream")
    return {key: value for key, value in depends_on.items() if key not in others}


def _sources(paths: Iterable[Path], store: Store) -> Places:
    found = (each for path in paths for each in with_sources(path, store.folder))
    return Places(each.parts[-2:] for each in found)


def _without(recipe: Path, error: UserError, is_asked: bool) -> tuple[bool, str]:
    """Return whether what a recipe made is kept although it can't be read, and why."""
    if not recipe.is_absolute() or recipe.exists():
        return True, f"its recipe cannot be read: {error}"
    if recipe.parent.is_dir():
        return not is_asked, f"its recipe {recipe} is gone; was it moved?"
    return True, f"there is no folder {recipe.parent}; was it moved?"


def _decide(
    each: Made, run: Provenance | None, unread: Mapping[str, tuple[bool, str]], *, drafts: bool
) -> tuple[bool, str]:
    path = Path(each.path)
    names, named = strays(path, []), {METRICS} if each.stage == "train" else set()
    # What somebody put in a draft, its manifest names too.
    named |= open_directory(path).manifest.files.keys() if each.state == "published" else {*names}
    for name in names:
        if name not in named or not OURS.fullmatch(name) or (path / name).is_symlink():
            return True, f"nmtkit did not write {name} in it"
    if each.state != "published":
        *is_kept, why = UNPUBLISHED[each.state]
        return is_kept[drafts], why
    if run is None:
        return True, "it does not say which recipe it is of"
    return unread.get(run.run, (False, "its recipe or its texts have changed since"))
