"""Decide which artifacts are needed, and free the others.

An artifact is needed if a recipe finds it: the recipe that built it, with the same overrides, or
any recipe under the current folder. In case of doubt, such as a recipe that cannot be read, an
artifact is kept. The inputs of kept artifacts are kept too.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nmtkit.config.loading import MAX_BYTES, absolute_override, load_recipe, read_toml, recipes_dir
from nmtkit.config.settings import Settings
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
from nmtkit.store.artifacts import Store
from nmtkit.store.manifests import MANIFEST, Manifest
from nmtkit.store.provenance import Provenance, split_overrides
from nmtkit.store.records import read_sealed
from nmtkit.store.verification import strays
from nmtkit.training.metrics import PAGE
from nmtkit.utils.errors import UserError

Place = tuple[str, str]  # a stage and a fingerprint

RECIPE_KEY = "corpus"  # a TOML file without it is not a recipe


class _Rule(NamedTuple):
    """Whether gc frees folders of a state."""

    is_freed: bool
    is_freed_with_drafts: bool  # with the option --drafts
    reason: str


# By state. Artifacts that are published have no such rule.
RULES = {
    LOCKED: _Rule(False, False, "another process is writing it"),
    STOPPED: _Rule(False, True, "a stopped run resumes it; --drafts frees it"),
    SET_ASIDE: _Rule(False, True, "damaged checkpoints; --drafts frees them"),
    DAMAGED: _Rule(False, False, "damaged; delete it yourself"),
    BEING_FREED: _Rule(True, True, "an earlier gc was stopped"),
}


@dataclass(frozen=True)
class Decision:
    """The decision on an artifact that no recipe was found to need."""

    artifact: ListedArtifact
    is_freed: bool
    reason: str


@dataclass
class _Needs:
    """The artifacts that recipes need, and the reasons why others may be needed."""

    places: set[Place] = field(default_factory=set)
    unresolved: dict[Provenance, str] = field(default_factory=dict)  # reasons, by recorded run
    unreadable: list[str] = field(default_factory=list)  # errors in recipes of the folder


def decide(
    settings: Settings,
    folder: Path,
    keep: Sequence[str] = (),
    *,
    drafts: bool = False,
    runs: Sequence[str] = (),
) -> list[Decision]:
    """Decide on every artifact that no recipe was found to need, or on those of some runs.

    Args:
        settings: The folder of artifacts.
        folder: Recipes in this folder and its subfolders are read.
        keep: Further runs to keep: recipes, which `--set` may follow, or folders of artifacts.
        drafts: Free the drafts of stopped runs too.
        runs: Free the artifacts of these runs that no other run needs, and nothing else: recipes,
            which `--set` may follow.

    Returns:
        The decisions, in the order of `list_artifacts`.

    Raises:
        UserError: One of `runs` built no artifact.
    """
    listed = list(list_artifacts(settings.runs_dir))
    built_by: dict[str, Provenance | None] = {}  # by the path of an artifact
    upstream: dict[Place, list[Place]] = {}
    for artifact in listed:
        record = recorded(Path(artifact.path))
        built_by[artifact.path] = record.run
        sources = record.upstream
        if artifact.state == PUBLISHED:
            manifest = read_sealed(Path(artifact.path) / MANIFEST, Manifest)
            sources = manifest.depends_on.get("upstream", {})
        upstream[_place(artifact)] = list(sources.items())

    # Neither a removed run nor its recipe keeps what it built.
    removed: set[Provenance] = set()
    for run_name in runs:
        removed |= _find_runs(run_name, built_by.values(), folder, settings.runs_dir)
    removed_recipes = {_recipe_file(run) for run in removed if not run.overrides}

    needs = _Needs()
    recipes = _find_recipes(folder, settings.runs_dir, needs)
    # The artifacts of several stages record the same run, which is resolved once.
    built = [built_by[artifact.path] for artifact in listed if artifact.state != BEING_FREED]
    for run in dict.fromkeys(built):
        if run is not None and run not in removed:
            _add_run(needs, run, folder, settings)
    for path in recipes:
        # There may be thousands of recipes; usually the recorded runs need all artifacts.
        if needs.places.issuperset(upstream):
            break
        if path.resolve() not in removed_recipes:
            _add_recipe(needs, path, settings)
    for name in keep:
        _add_kept(needs, name, settings)
    _add_upstream(needs.places, upstream)

    decisions = []
    kept = set()
    for artifact in listed:
        run = built_by[artifact.path]
        if _place(artifact) in needs.places:
            if run in removed:
                decisions.append(Decision(artifact, False, "another run or recipe needs it"))
            continue
        if not runs:
            decision = _decide(artifact, run, needs, drafts=drafts)
        elif run in removed:
            decision = _decide_removed(artifact)
        else:
            kept.add(_place(artifact))
            continue
        decisions.append(decision)
        if not decision.is_freed:
            kept.add(_place(artifact))
    # The inputs of a kept artifact are kept too, without a line of their own.
    _add_upstream(kept, upstream)
    final = []
    for decision in decisions:
        if not decision.is_freed or _place(decision.artifact) not in kept:
            final.append(decision)
        elif runs:
            final.append(Decision(decision.artifact, False, "another run needs it"))
    return final


def free(
    paths: Sequence[Path],
    settings: Settings,
    folder: Path,
    keep: Sequence[str] = (),
    *,
    drafts: bool = False,
    runs: Sequence[str] = (),
) -> None:
    """Free artifacts that are still not needed, while no stage can build any.

    Args:
        paths: The folders of the artifacts that the user agreed to free.
        settings: The folder of artifacts.
        folder: See `decide`.
        keep: See `decide`.
        drafts: See `decide`.
        runs: See `decide`.
    """
    store = Store(settings.runs_dir)
    with store.freeing():
        # A recipe may have been written, or an artifact built, since the user agreed.
        decisions = decide(settings, folder, keep, drafts=drafts, runs=runs)
        # Artifacts are freed before their inputs, so that a kill leaves nothing without its inputs.
        for decision in reversed(decisions):
            path = Path(decision.artifact.path)
            if decision.is_freed and path in paths:
                store.free(path)
                if decision.artifact.stage == "train":
                    store.place("train", path.stem).with_suffix(PAGE).unlink(missing_ok=True)


def _find_runs(
    name: str, recorded_runs: Iterable[Provenance | None], folder: Path, runs_dir: Path
) -> set[Provenance]:
    """Find the recorded runs that a user names, as `nmtkit runs` prints them.

    Args:
        name: A recipe, which `--set` may follow.
        recorded_runs: The runs that built the artifacts.
        folder: The folder of the recipes; paths in `name` are relative to it.
        runs_dir: The folder of artifacts, for messages.

    Raises:
        UserError: There is none.
    """
    recipe, typed = split_overrides(name)
    # Recorded paths are absolute; the order in which overrides were typed does not count.
    overrides = sorted(absolute_override(override, folder) for override in typed)
    recipes = {recipe, str((folder / recipe).resolve())}
    found = set()
    for run in recorded_runs:
        if run is not None and run.recipe in recipes and sorted(run.overrides) == overrides:
            found.add(run)
    if not found:
        raise UserError(
            f"no artifact in {runs_dir} was built by the run {name!r}; `nmtkit runs` lists the runs"
        )
    return found


def _recipe_file(run: Provenance) -> Path:
    """Return the file of a run's recipe, which may be gone."""
    if Path(run.recipe).is_absolute():
        return Path(run.recipe)
    return (recipes_dir() / f"{run.recipe}.toml").resolve()


def _place(artifact: ListedArtifact) -> Place:
    """Return the stage and the fingerprint of an artifact; a draft has its suffix too."""
    return artifact.stage, Path(artifact.path).name


def _add_upstream(places: set[Place], upstream: Mapping[Place, Sequence[Place]]) -> None:
    """Add the inputs of the artifacts at `places`, and the inputs of those.

    Args:
        places: Artifacts, to which their inputs are added.
        upstream: The inputs of each artifact.
    """
    waiting = list(places)
    while waiting:
        for source in upstream.get(waiting.pop(), ()):
            if source not in places:
                places.add(source)
                waiting.append(source)


# The artifacts that recipes need


def _find_recipes(folder: Path, runs_dir: Path, needs: _Needs) -> list[Path]:
    """Find the recipes in a folder and its subfolders, but hidden ones and `runs_dir`.

    Args:
        folder: Where to look.
        runs_dir: The folder of artifacts.
        needs: Receives the errors of files that cannot be read.
    """
    recipes = []
    for place, folders, names in os.walk(folder):
        # os.walk descends into the folders that are left in this list.
        visible = []
        for name in sorted(folders):
            if not name.startswith(".") and not _is_same(Path(place, name), runs_dir):
                visible.append(name)
        folders[:] = visible
        for name in sorted(names):
            path = Path(place, name)
            try:
                is_candidate = path.suffix == ".toml" and path.is_file()
                is_small = is_candidate and path.stat().st_size <= MAX_BYTES
                if is_small and RECIPE_KEY in read_toml(path):
                    recipes.append(path)
            except (UserError, OSError) as error:
                # It may be the recipe that needs an artifact, so nothing is freed next to it.
                needs.unreadable.append(str(error))
    return recipes


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


def _add_pipeline(needs: _Needs, pipeline: Pipeline) -> None:
    """Add the artifacts of a pipeline, and the bundles that it starts from.

    Raises:
        UserError: A text or a bundle of the recipe cannot be read.
        OSError: Likewise.
    """
    for bundle in pipeline.bundles.values():
        manifest = bundle.artifact.manifest
        needs.places.add((manifest.kind, str(manifest.fingerprint)))
    for stage in STAGES:
        needs.places.add((stage, pipeline.fingerprint(stage)))


def _add_kept(needs: _Needs, name: str, settings: Settings) -> None:
    """Add the run of a `--keep`: the folder of an artifact, or a recipe with its overrides."""
    if (Path(name) / MANIFEST).is_file():
        manifest = read_sealed(Path(name) / MANIFEST, Manifest)
        needs.places.add((manifest.kind, str(manifest.fingerprint)))
        return
    recipe, overrides = split_overrides(name)
    _add_pipeline(needs, Pipeline(load_recipe(recipe, overrides), settings, recipe, overrides))


def _add_recipe(needs: _Needs, path: Path, settings: Settings) -> None:
    """Add the artifacts of a recipe of the folder, if its texts can be read."""
    try:
        recipe = load_recipe(str(path))
    except (UserError, OSError) as error:
        needs.unreadable.append(str(error))
        return
    # Without its texts, its fingerprints are unknown. Artifacts that it built are kept anyway,
    # because their recorded run is unresolved.
    with suppress(UserError, OSError):
        _add_pipeline(needs, Pipeline(recipe, settings, str(path)))


def _add_run(needs: _Needs, run: Provenance, folder: Path, settings: Settings) -> None:
    """Add the artifacts that a recorded run would find today, with the environment of then.

    Args:
        needs: Receives the artifacts, or the reason why they are not known.
        run: The recorded run.
        folder: The folder of the recipes.
        settings: The folder of artifacts.
    """
    is_gone = Path(run.recipe).is_absolute() and not Path(run.recipe).exists()
    if is_gone and Path(run.recipe).is_relative_to(folder):
        return  # the user deleted it, or has renamed it: then it is found in its new place
    if is_gone:
        # The disk that it is on may not be mounted.
        needs.unresolved[run] = f"its recipe {run.recipe} is gone"
        return
    try:
        with _environment(dict(run.variables)):
            recipe = load_recipe(run.recipe, run.overrides)
            _add_pipeline(needs, Pipeline(recipe, settings, run.recipe, run.overrides))
    except (UserError, OSError) as error:
        needs.unresolved[run] = f"its recipe or a text of it cannot be read: {error}"


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for the duration of a block; None unsets a variable."""
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


# The other artifacts


def _decide_removed(artifact: ListedArtifact) -> Decision:
    """Decide on an artifact of a run that the user wants to remove."""
    if artifact.state == LOCKED:
        return Decision(artifact, False, RULES[LOCKED].reason)
    if artifact.state == PUBLISHED and (unlisted := _unlisted_files(Path(artifact.path))):
        return Decision(artifact, False, f"its manifest does not list {unlisted[0]}")
    return Decision(artifact, True, "it belongs to the run")


def _decide(
    artifact: ListedArtifact, run: Provenance | None, needs: _Needs, *, drafts: bool
) -> Decision:
    """Decide on an artifact that no recipe was found to need.

    Args:
        artifact: The artifact.
        run: The run that built it, if it is recorded.
        needs: The reasons why it may be needed nevertheless.
        drafts: See `decide`.
    """
    rule = RULES.get(artifact.state)
    if rule is not None:
        is_freed = rule.is_freed_with_drafts if drafts else rule.is_freed
        return Decision(artifact, is_freed, rule.reason)
    # Other states have a rule, so from here on the artifact is published.
    if unlisted := _unlisted_files(Path(artifact.path)):
        return Decision(artifact, False, f"its manifest does not list {unlisted[0]}")
    if run is None:
        return Decision(artifact, False, "the recipe that built it is not recorded")
    if run in needs.unresolved:
        return Decision(artifact, False, needs.unresolved[run])
    # Any recipe that cannot be read may be the one that needs it.
    if needs.unreadable:
        return Decision(artifact, False, f"a recipe may need it: {needs.unreadable[0]}")
    return Decision(artifact, True, "its recipe or its texts have changed, or are gone")


def _unlisted_files(path: Path) -> list[str]:
    """Return the files of a published folder that nmtkit did not write."""
    # The user may have saved them there, so the folder is not deleted.
    manifest = read_sealed(path / MANIFEST, Manifest)
    return strays(path, [*manifest.files, *recorded(path).measured])
