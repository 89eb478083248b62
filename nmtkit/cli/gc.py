"""nmtkit gc: free what no recipe needs any more, and nothing else."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from nmtkit import progress
from nmtkit.cli.options import chain_of, command, flag, option
from nmtkit.cli.runs import Made, disk_bytes, made, made_grid, recorded
from nmtkit.errors import UserError
from nmtkit.files import read_sealed
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance, split_overrides
from nmtkit.recipe_file import NotTomlError
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.store import MANIFEST, Manifest, Store, open_directory, strays
from nmtkit.training.metrics import METRICS

Places = set[tuple[str, ...]]  # stages and fingerprints
Alike = dict[str, list[str]]  # fingerprints, by what they depend on besides code
Upstream = dict[tuple[str, ...], Places]  # of each place
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
    alike, upstream = Alike(), Upstream()
    there = [(each, recorded(Path(each.path))) for each in made(machine.runs_dir)]
    for each, by in there:
        path, then = Path(each.path), {"upstream": by.upstream}
        if each.state == "published":
            then = read_sealed(path / MANIFEST, Manifest).depends_on
            alike.setdefault(_of_recipe(each.stage, then), []).append(path.name)
        upstream[path.parts[-2:]] = Places(then.get("upstream", {}).items())
    runs = {by.run.run: by.run for each, by in there if by.run and each.state != "being freed"}
    needed, unread = Places(), {}
    for name, run in runs.items():
        try:
            needed |= _needs(chain_of(run.recipe, run.overrides, machine), alike)
        except (UserError, OSError) as error:
            unread[name] = _without(Path(run.recipe), error, is_asked)
    own = [run for run in runs.values() if Path(run.recipe).is_absolute()]
    moved = {(), *(run.overrides for run in own if not Path(run.recipe).exists())}
    for folder in {Path.cwd(), *(Path(run.recipe).parent for run in own)}:
        for beside, overrides in product(folder.glob("*.toml"), moved):
            if needed.issuperset(upstream):
                break  # there may be thousands
            try:
                needed |= _needs(chain_of(str(beside), overrides, machine), alike)
            except NotTomlError as error:
                progress.warn_once(f"gc: skipping a file: {error}")
            except (UserError, OSError):  # it is another TOML file
                pass
    for named in keep:
        if (Path(named) / MANIFEST).is_file():
            kept_one = read_sealed(Path(named) / MANIFEST, Manifest)
            needed.add((kept_one.kind, str(kept_one.fingerprint)))
        else:
            needed |= _needs(chain_of(*split_overrides(named), machine), alike)
    needed = _with_sources(needed, upstream)
    decided = [
        (each, *_decide(each, by.run, unread, drafts=drafts))
        for each, by in there
        if Path(each.path).parts[-2:] not in needed
    ]
    kept = [(each, why) for each, is_kept, why in decided if is_kept]
    needed |= _with_sources({Path(each.path).parts[-2:] for each, _ in kept}, upstream)
    freed = [(each, why) for each, _, why in decided if Path(each.path).parts[-2:] not in needed]
    return freed, kept


def _needs(chain: Chain, alike: Alike) -> Places:
    """Return what a run would find, whatever code and whatever SACREBLEU_SEED made it."""
    needed, before = Places(), [dict[str, str]()]
    for stage in STAGES:
        wanted = chain.depends_on(stage)
        keys = [_of_recipe(stage, {**wanted, "upstream": each}) for each in before]
        names = {chain.fingerprint(stage), *(name for key in keys for name in alike.get(key, ()))}
        needed.update((stage, name) for name in names)
        before = [{stage: name} for name in names]
    bundles = (bundle.artifact.manifest for bundle in chain.bundles.values())
    return needed.union((each.kind, str(each.fingerprint)) for each in bundles)


def _of_recipe(stage: str, depends_on: Mapping[str, Any]) -> str:
    values = {key: value for key, value in depends_on.items() if key not in ("code", "seed")}
    return json.dumps([stage, {"upstream": {}, **values}], sort_keys=True)


def _with_sources(places: Places, upstream: Upstream) -> Places:
    before = Places().union(*(upstream.get(each, ()) for each in places))
    return places | _with_sources(before, upstream) if before else places


def _without(recipe: Path, error: Exception, is_asked: bool) -> tuple[bool, str]:
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
