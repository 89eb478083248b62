"""Which artifacts are needed, and which can be freed.

An artifact is needed if a recipe finds it: the recipe that built it, with the same overrides, or
any recipe under the current folder. Whatever cannot be decided, such as the artifacts of a recipe
that cannot be read, is kept, and so is all that a kept artifact was built from.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nmtkit.config.loading import MAX_BYTES, absolute_override, load_recipe, read_toml
from nmtkit.config.settings import Settings
from nmtkit.evaluation.seed import SEED
from nmtkit.stages.listing import (
    BEING_FREED,
    DAMAGED,
    LOCKED,
    PUBLISHED,
    SET_ASIDE,
    STOPPED,
    ListedArtifact,
    list_artifacts,
    recorded,
)
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.manifests import MANIFEST, Manifest
from nmtkit.store.provenance import Provenance, split_overrides
from nmtkit.store.records import read_sealed, sha256_of
from nmtkit.store.verification import strays
from nmtkit.utils.errors import UserError

Place = tuple[str, str]  # a stage and a fingerprint

RECIPE_KEY = "corpus"  # a TOML file without it is not a recipe
# By state: whether the folder is freed without --drafts, and with it, and the reason.
UNPUBLISHED = {
    LOCKED: (False, False, "another process is writing it"),
    STOPPED: (False, True, "a stopped run resumes it; --drafts frees it"),
    SET_ASIDE: (False, True, "damaged checkpoints; --drafts frees them"),
    DAMAGED: (False, False, "damaged; delete it yourself"),
    BEING_FREED: (True, True, "an earlier gc was stopped"),
}


@dataclass(frozen=True)
class Decision:
    """An artifact that no recipe was found to need, and what becomes of it."""

    artifact: ListedArtifact
    is_freed: bool
    reason: str


@dataclass
class _Needs:
    """What recipes need."""

    places: set[Place] = field(default_factory=set)
    unresolved: dict[Provenance, str] = field(default_factory=dict)  # recorded runs, and why
    unreadable: list[str] = field(default_factory=list)  # why recipes of the folder are not read


def decide(
    settings: Settings, folder: Path, keep: Sequence[str] = (), *, drafts: bool = False
) -> list[Decision]:
    """Decide on every artifact that no recipe was found to need.

    Args:
        machine: Has the folder of artifacts.
        folder: Recipes in this folder, and in folders in it, are read.
        keep: Recipes, with `--set` if need be, or folders of artifacts that are needed too.
        drafts: Whether what stopped runs left is freed.

    Returns:
        The decisions, in the order of `list_artifacts`.
    """
    listed = list(list_artifacts(settings.runs_dir))
    runs: dict[str, Provenance | None] = {}  # by the path of an artifact
    upstream: dict[Place, list[Place]] = {}
    for artifact in listed:
        record = recorded(Path(artifact.path))
        runs[artifact.path] = record.run
        sources = record.upstream
        if artifact.state == PUBLISHED:
            manifest = read_sealed(Path(artifact.path) / MANIFEST, Manifest)
            sources = manifest.depends_on.get("upstream", {})
        upstream[_place(artifact)] = list(sources.items())

    needs = _Needs()
    recipes = _find_recipes(folder, settings.runs_dir, needs)
    built = [runs[artifact.path] for artifact in listed if artifact.state != BEING_FREED]
    for run in dict.fromkeys(built):
        if run is not None:
            _add_run(needs, run, recipes, folder, settings)
    for path in recipes:
        if needs.places.issuperset(upstream):
            break  # there may be thousands of recipes
        _add_recipe(needs, path, settings)
    for name in keep:
        _add_kept(needs, name, settings)
    _add_upstream(needs.places, upstream)

    others = [artifact for artifact in listed if _place(artifact) not in needs.places]
    decisions = [_decide(other, runs[other.path], needs, drafts=drafts) for other in others]
    # What a kept artifact was built from is kept too, without a line of its own.
    kept = {_place(decision.artifact) for decision in decisions if not decision.is_freed}
    _add_upstream(kept, upstream)
    return [
        decision
        for decision in decisions
        if not decision.is_freed or _place(decision.artifact) not in kept
    ]


def _place(artifact: ListedArtifact) -> Place:
    return artifact.stage, Path(artifact.path).name


def _add_upstream(places: set[Place], upstream: Mapping[Place, Sequence[Place]]) -> None:
    """Add everything that the artifacts at `places` were built from."""
    waiting = list(places)
    while waiting:
        for source in upstream.get(waiting.pop(), ()):
            if source not in places:
                places.add(source)
                waiting.append(source)


# What recipes need


def _find_recipes(folder: Path, runs_dir: Path, needs: _Needs) -> dict[Path, str]:
    """Find the recipes in a folder and in its folders that are neither hidden nor `runs_dir`.

    Returns:
        The sha256 of each recipe.
    """
    recipes = {}
    for place, folders, names in os.walk(folder):
        visible = [name for name in folders if not name.startswith(".")]
        folders[:] = sorted(name for name in visible if not _is_same(Path(place, name), runs_dir))
        for name in sorted(names):
            path = Path(place, name)
            try:
                is_candidate = path.suffix == ".toml" and path.is_file()
                is_small = is_candidate and path.stat().st_size <= MAX_BYTES
                if is_small and RECIPE_KEY in read_toml(path):
                    recipes[path] = sha256_of(path)
            except (UserError, OSError) as error:
                needs.unreadable.append(str(error))
    return recipes


def _is_same(one: Path, other: Path) -> bool:
    return other.exists() and one.samefile(other)


def _add_chain(needs: _Needs, pipeline: Pipeline) -> None:
    """Add what a run of `chain` would find, and the bundles that it starts from.

    Raises:
        UserError: Something that the chain depends on cannot be read.
        OSError: Likewise.
    """
    for bundle in pipeline.bundles.values():
        manifest = bundle.artifact.manifest
        needs.places.add((manifest.kind, str(manifest.fingerprint)))
    for stage in STAGES:
        needs.places.add((stage, pipeline.fingerprint(stage)))


def _add_kept(needs: _Needs, name: str, settings: Settings) -> None:
    """Add what `--keep` names: the folder of an artifact, or a recipe with its overrides."""
    if (Path(name) / MANIFEST).is_file():
        manifest = read_sealed(Path(name) / MANIFEST, Manifest)
        needs.places.add((manifest.kind, str(manifest.fingerprint)))
        return
    recipe, overrides = split_overrides(name)
    _add_chain(needs, Pipeline(load_recipe(recipe, overrides), settings, recipe, overrides))


def _add_recipe(needs: _Needs, path: Path, settings: Settings) -> None:
    """Add what a recipe of the folder needs, as far as its texts can be read."""
    try:
        recipe = load_recipe(str(path))
    except (UserError, OSError) as error:
        needs.unreadable.append(str(error))
        return
    # Without its texts, nothing but what it built itself is kept, as that of an unresolved run.
    with suppress(UserError, OSError):
        _add_chain(needs, Pipeline(recipe, settings, str(path)))


def _add_run(
    needs: _Needs, run: Provenance, recipes: Mapping[Path, str], folder: Path, settings: Settings
) -> None:
    """Add what a recorded run would find today, with the environment that it had."""
    names = [run.recipe]
    if Path(run.recipe).is_absolute() and not Path(run.recipe).exists():
        # A recipe that was moved is recognized by its content.
        names = [str(path) for path, sha256 in recipes.items() if sha256 == run.sha256]
        if not names and not Path(run.recipe).is_relative_to(folder):
            needs.unresolved[run] = f"its recipe {run.recipe} is gone"
    if any(absolute_override(override, folder) != override for override in run.overrides):
        # Recorded by an earlier version.
        needs.unresolved[run] = "the folder of the paths in its --set is not recorded"
    for name in names:
        try:
            with _environment(dict(run.variables)):
                pipeline = Pipeline(load_recipe(name, run.overrides), settings, name, run.overrides)
                for variable in {*pipeline.variables()} - {*dict(run.variables), SEED}:
                    needs.unresolved[run] = f"the value of {variable} that it had is not recorded"
                _add_chain(needs, pipeline)
        except (UserError, OSError) as error:
            needs.unresolved[run] = f"its recipe or a text of it cannot be read: {error}"


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for the duration of a block; None is for one that is not set."""
    before = {name: os.environ.get(name) for name in variables}
    _set_environment(variables)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# What becomes of the others


def _decide(
    artifact: ListedArtifact, run: Provenance | None, needs: _Needs, *, drafts: bool
) -> Decision:
    if artifact.state in UNPUBLISHED:
        is_freed, is_freed_as_draft, reason = UNPUBLISHED[artifact.state]
        return Decision(artifact, is_freed_as_draft if drafts else is_freed, reason)
    if unlisted := _unlisted_files(Path(artifact.path)):
        return Decision(artifact, False, f"its manifest does not list {unlisted[0]}")
    if run is None:
        return Decision(artifact, False, "the recipe that built it is not recorded")
    if run in needs.unresolved:
        return Decision(artifact, False, needs.unresolved[run])
    if needs.unreadable:
        return Decision(artifact, False, f"a recipe may need it: {needs.unreadable[0]}")
    return Decision(artifact, True, "its recipe or its texts have changed, or are gone")


def _unlisted_files(path: Path) -> list[str]:
    """Return the files in a published folder that are not nmtkit's: no manifest lists them."""
    manifest = read_sealed(path / MANIFEST, Manifest)
    return strays(path, [*manifest.files, *recorded(path).measured])
