"""Free what no recipe needs any more, and nothing else."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

from nmtkit.commands.known_runs import disk_bytes, made, named_chain, recorded, upstream_of
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance
from nmtkit.recipe_file import bundled_recipes, load_recipe
from nmtkit.reporting.facts import Garbage, Made
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import Code
from nmtkit.store import MANIFEST, Store

Place = tuple[str, str]  # stage and fingerprint
GONE = "gone"  # of a recipe


def find_garbage(machine: Machine, keep: Sequence[str], *, drafts: bool) -> Garbage:
    """Sort what there is into what is needed, what is kept all the same, and what can be freed.

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
    there = list(made(machine.runs_dir))
    runs = {each.path: recorded(Path(each.path)).run for each in there}
    codes = list(_remade(store))
    needs = {run.run: _needs(run, machine, codes) for run in runs.values() if run is not None}
    needed = set[Place]()
    for each_needs in needs.values():
        needed |= each_needs if isinstance(each_needs, set) else set()
    for recipe in bundled_recipes():
        with suppress(UserError):  # a download has to come for its hash to be known
            needed |= _needs_of(Chain(load_recipe(recipe.stem), machine, recipe.stem), codes)
    for recipe in _renamed(runs.values()):
        with suppress(UserError):  # another TOML file
            needed |= _needs_of(Chain(load_recipe(str(recipe)), machine, str(recipe)), codes)
    for named in keep:
        needed |= _named(named, machine, codes)
    why: dict[str, str] = {}
    kept: list[Made] = []
    for each in there:
        run = runs[each.path]
        is_kept, why[each.path] = _decide(
            each, run, needs[run.run] if run else set(), drafts=drafts
        )
        if is_kept:
            kept.append(each)
            needed.add((each.stage, each.fingerprint))
            needed |= set(upstream_of(Path(each.path)).items())
    _close(needed, store)
    freed = [
        each
        for each in there
        if each not in kept
        and not (each.state == "published" and (each.stage, each.fingerprint) in needed)
    ]
    n_bytes = disk_bytes([Path(each.path) for each in freed], freed=True)
    return Garbage(freed, kept, why, n_bytes)


def free(garbage: Garbage, machine: Machine, keep: Sequence[str], *, drafts: bool) -> None:
    """Delete what `find_garbage` found and still finds, results before what they were made from.

    Raises:
        UserError: a stage is being made.
    """
    store = Store(machine.runs_dir)
    with store.freeing():
        still = {each.path for each in find_garbage(machine, keep, drafts=drafts).freed}
        for each in sorted(garbage.freed, key=lambda each: -list(STAGES).index(each.stage)):
            if each.path in still:
                store.free(Path(each.path))


def _decide(
    each: Made, run: Provenance | None, needs: set[Place] | str, *, drafts: bool
) -> tuple[bool, str]:
    """Return whether a folder is kept if nothing else needs it, and why."""
    if each.state != "published":
        return {
            "being made": (True, "another process is making it"),
            "stopped": (not drafts, "a stopped run resumes it; --drafts frees it"),
            "set aside": (not drafts, "damaged checkpoints; --drafts frees them"),
            "damaged": (True, "damaged; delete it yourself"),
            "being freed": (False, "an earlier gc was stopped"),
        }[each.state]
    if run is None:
        return True, "it does not say which recipe it is of"
    if needs == GONE:
        return False, f"its recipe {run.recipe} is gone"
    if isinstance(needs, str):
        return True, f"its recipe cannot be read: {needs}"
    if (each.stage, each.fingerprint) in needs:
        return True, "needed"
    return False, "its recipe or its texts have changed since"


def _remade(store: Store) -> Iterator[Code]:
    """Yield each code that `--remake` made an artifact with, and none."""
    yield {}
    for stage in STAGES:
        for artifact in store.all(stage):
            if "code" in artifact.manifest.depends_on:
                yield artifact.manifest.code


def _needs(run: Provenance, machine: Machine, codes: Sequence[Code]) -> set[Place] | str:
    """Return what a recorded run would find today, or why that is not known."""
    path = Path(run.recipe)
    if path.is_absolute() and not path.exists():
        if path.parent.is_dir():
            return GONE
        return f"there is no folder {path.parent}; was it moved?"
    try:
        recipe = load_recipe(run.recipe, run.overrides)
        return _needs_of(Chain(recipe, machine, run.recipe, run.overrides), codes)
    except UserError as error:
        return str(error)


def _renamed(runs: Iterable[Provenance | None]) -> set[Path]:
    """Return the recipes that are where a recorded one was."""
    paths = (Path(run.recipe) for run in runs if run is not None)
    folders = {path.parent for path in paths if path.is_absolute() and not path.exists()}
    return {recipe for folder in folders for recipe in folder.glob("*.toml")}


def _needs_of(chain: Chain, codes: Sequence[Code]) -> set[Place]:
    places = set[Place]()
    for code in codes:
        of_code = copy(chain)
        of_code.code = code
        places |= {(stage, of_code.fingerprint(stage)) for stage in STAGES}
        scores = {**of_code.depends_on("score"), "seed": None}  # those of any SACREBLEU_SEED
        for artifact in chain.store.all("score"):
            if {**artifact.manifest.depends_on, "seed": None} == scores:
                places.add(("score", artifact.path.name))
    for bundle in chain.bundles.values():
        place = bundle.artifact.path.resolve()
        places.add((place.parent.name, place.name))
    return places


def _named(run: str, machine: Machine, codes: Sequence[Code]) -> set[Place]:
    path = Path(run)
    if (path / MANIFEST).is_file():
        return {(path.resolve().parent.name, path.resolve().name)}
    return _needs_of(named_chain(run, machine), codes)


def _close(needed: set[Place], store: Store) -> None:
    """Add what the needed artifacts were made from."""
    left = list(needed)
    while left:
        new = set(upstream_of(store.place(*left.pop())).items()) - needed
        needed |= new
        left += new
