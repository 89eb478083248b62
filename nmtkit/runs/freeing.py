"""Decide which artifacts are needed, and delete the others.

An artifact is needed if a recipe finds it: the recipe that built it, with the same overrides, or
any recipe under the current folder. In case of doubt, such as a recipe that cannot be read, an
artifact is kept. The inputs of kept artifacts are kept too.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nmtkit.config.loading import (
    MAX_TOML_BYTES,
    absolute_override,
    load_recipe,
    read_toml,
    recipes_dir,
)
from nmtkit.config.settings import Settings
from nmtkit.runs.listing import (
    BEING_FREED,
    DAMAGED,
    LOCKED,
    PUBLISHED,
    SET_ASIDE,
    STOPPED,
    ListedArtifact,
    list_artifacts,
)
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.artifacts import Store, unpublished_files
from nmtkit.store.manifests import MANIFEST, Manifest
from nmtkit.store.provenance import Provenance, read_run_record, split_overrides
from nmtkit.store.records import read_sealed
from nmtkit.training.metrics import PAGE
from nmtkit.utils.errors import UserError

Key = tuple[str, str]  # a stage and a fingerprint

RECIPE_KEY = "corpus"  # a TOML file without it is not a recipe


class _Rule(NamedTuple):
    """Whether gc deletes folders of a state."""

    is_freed: bool
    is_freed_with_drafts: bool  # with the option --drafts
    reason: str


# By state. Artifacts that are published have no such rule.
RULES = {
    LOCKED: _Rule(False, False, "another process is writing it"),
    STOPPED: _Rule(False, True, "a stopped run resumes it; --drafts deletes it"),
    SET_ASIDE: _Rule(False, True, "damaged checkpoints; --drafts deletes them"),
    DAMAGED: _Rule(False, False, "damaged; delete it yourself"),
    BEING_FREED: _Rule(True, True, "an earlier gc was stopped"),
}


@dataclass(frozen=True)
class Decision:
    """The decision on an artifact that no recipe was found to need."""

    artifact: ListedArtifact
    is_freed: bool
    reason: str


@dataclass(frozen=True)
class _RecordedArtifact:
    """An artifact with its records."""

    artifact: ListedArtifact
    run: Provenance | None  # that built it; None: not recorded
    upstream: list[Key]  # its inputs


# What recipes and recorded runs need


@dataclass
class Needs:
    """The artifacts that recipes and recorded runs still need, and why others may be needed."""

    folder: Path  # recipes in it and in its subfolders are read
    settings: Settings  # the folder of artifacts
    keys: set[Key] = field(default_factory=set)
    unresolved: dict[Provenance, str] = field(default_factory=dict)  # reasons, by recorded run
    unreadable: list[str] = field(default_factory=list)  # errors in recipes of the folder

    def find_recipes(self) -> list[Path]:
        """Find recipes recursively, skipping hidden folders and the folder of artifacts."""
        recipes = []
        runs_dir = self.settings.runs_dir
        for parent, folders, names in os.walk(self.folder):
            # os.walk descends into the folders that are left in this list.
            visible = []
            for name in sorted(folders):
                is_runs_dir = runs_dir.exists() and runs_dir.samefile(Path(parent, name))
                if not name.startswith(".") and not is_runs_dir:
                    visible.append(name)
            folders[:] = visible
            for name in sorted(names):
                path = Path(parent, name)
                try:
                    is_candidate = path.suffix == ".toml" and path.is_file()
                    is_small = is_candidate and path.stat().st_size <= MAX_TOML_BYTES
                    if is_small and RECIPE_KEY in read_toml(path):
                        recipes.append(path)
                except (UserError, OSError) as error:
                    # It may be the recipe that needs an artifact, so nothing is deleted next to it.
                    self.unreadable.append(str(error))
        return recipes

    def add_kept(self, name: str) -> None:
        """Add the run of a `--keep`: the folder of an artifact, or a recipe with its overrides."""
        # A folder is kept as it is, whatever its recipe has become since.
        if (Path(name) / MANIFEST).is_file():
            manifest = read_sealed(Path(name) / MANIFEST, Manifest)
            self.keys.add((manifest.kind, str(manifest.fingerprint)))
            return
        recipe, overrides = split_overrides(name)
        self._add(Pipeline(load_recipe(recipe, overrides), self.settings, recipe))

    def add_recipe(self, path: Path) -> None:
        """Add the artifacts of a recipe of the folder, if its texts can be read."""
        try:
            recipe = load_recipe(str(path))
        except (UserError, OSError) as error:
            self.unreadable.append(str(error))
            return
        # Without its texts, its fingerprints are unknown. Artifacts that it built are kept anyway,
        # because their recorded run is unresolved.
        with suppress(UserError, OSError):
            self._add(Pipeline(recipe, self.settings, str(path)))

    def add_run(self, run: Provenance) -> None:
        """Add the artifacts that a recorded run would find today, with the environment of then."""
        is_gone = Path(run.recipe).is_absolute() and not Path(run.recipe).exists()
        if is_gone and Path(run.recipe).is_relative_to(self.folder):
            return  # the user deleted it, or has renamed it: then it is found under its new name
        if is_gone:
            # The disk that it is on may not be mounted.
            self.unresolved[run] = f"its recipe {run.recipe} is gone"
            return
        try:
            with _environment(dict(run.variables)):
                recipe = load_recipe(run.recipe, run.overrides)
                self._add(Pipeline(recipe, self.settings, run.recipe))
        except (UserError, OSError) as error:
            self.unresolved[run] = f"its recipe or a text of it cannot be read: {error}"

    def _add(self, pipeline: Pipeline) -> None:
        """Add the artifacts of a recipe, and the bundles that it starts from.

        Raises:
            UserError: A text or a bundle of the recipe cannot be read.
            OSError: Likewise.
        """
        for stage in STAGES:
            bundle = pipeline.bundle(stage)
            if bundle is not None:
                manifest = bundle.artifact.manifest
                self.keys.add((manifest.kind, str(manifest.fingerprint)))
            self.keys.add((stage, pipeline.fingerprint(stage)))


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for the duration of a block; None unsets a variable."""
    # Other runs have other values, and must not see these.
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


# Decisions


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
        keep: Further runs to keep: recipes, optionally with `--set`, or folders of artifacts.
        drafts: Delete the drafts of stopped runs, too.
        runs: Delete the artifacts of these runs that no other run needs, and nothing else: recipes,
            which `--set` may follow.

    Returns:
        The decisions, in the order of `list_artifacts`.

    Raises:
        UserError: One of `runs` built no artifact.
    """
    recorded = [_read_records(artifact) for artifact in list_artifacts(settings.runs_dir)]
    upstream = {_key(item.artifact): item.upstream for item in recorded}
    removed: set[Provenance] = set()
    for run_name in runs:
        removed |= _find_runs(run_name, recorded, folder, settings.runs_dir)
    needs = Needs(folder, settings)
    _find_needs(needs, recorded, removed, keep)
    _add_upstream(needs.keys, upstream)

    decisions = []
    kept = set()
    for item in recorded:
        decision = None
        if runs:
            decision = _decide_removed(item, removed, needs)
        elif _key(item.artifact) not in needs.keys:
            decision = _decide(item, needs, drafts=drafts)
        if decision is not None:
            decisions.append(decision)
        if decision is None or not decision.is_freed:
            kept.add(_key(item.artifact))

    # The inputs of a kept artifact are kept too, without a line of their own.
    _add_upstream(kept, upstream)
    final = []
    for decision in decisions:
        if not decision.is_freed or _key(decision.artifact) not in kept:
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
    """Delete those of `paths` that are still not needed, while no stage can build any.

    The other arguments are those of `decide`.
    """
    store = Store(settings.runs_dir)
    with store.freeing():
        # A recipe may have been written, or an artifact built, since the user agreed.
        decisions = decide(settings, folder, keep, drafts=drafts, runs=runs)
        # Artifacts are deleted before their inputs: a kill leaves nothing without its inputs.
        for decision in reversed(decisions):
            path = Path(decision.artifact.path)
            if decision.is_freed and path in paths:
                store.free(path)
                if decision.artifact.stage == "train":
                    store.place("train", path.stem).with_suffix(PAGE).unlink(missing_ok=True)


def _read_records(artifact: ListedArtifact) -> _RecordedArtifact:
    """Read the run that built an artifact, and its inputs."""
    record = read_run_record(Path(artifact.path))
    # A draft has no manifest: its records name its inputs.
    sources = record.upstream
    if artifact.state == PUBLISHED:
        manifest = read_sealed(Path(artifact.path) / MANIFEST, Manifest)
        sources = manifest.depends_on.get("upstream", {})
    return _RecordedArtifact(artifact, record.run, list(sources.items()))


def _find_needs(
    needs: Needs,
    recorded: Sequence[_RecordedArtifact],
    removed: Set[Provenance],
    keep: Sequence[str],
) -> None:
    """Find the artifacts that recorded runs, the recipes of a folder and the user need.

    Args:
        needs: The needs of the folder. Those of the runs are added to them.
        removed: The runs to delete. Neither they nor their recipes keep their artifacts.
        keep: See `decide`.
    """
    removed_recipes = set()  # their files; they may be gone
    for removed_run in removed:
        if not removed_run.overrides:
            path = Path(removed_run.recipe)
            if not path.is_absolute():  # a recipe that comes with nmtkit
                path = recipes_dir() / f"{path}.toml"
            removed_recipes.add(path.resolve())
    recipes = needs.find_recipes()
    # The artifacts of several stages record the same run. It is resolved once.
    built = [item.run for item in recorded if item.artifact.state != BEING_FREED]
    for run in dict.fromkeys(built):
        if run is not None and run not in removed:
            needs.add_run(run)
    keys = {_key(item.artifact) for item in recorded}
    for path in recipes:
        # There may be thousands of recipes; usually the recorded runs need all artifacts.
        if needs.keys.issuperset(keys):
            break
        if path.resolve() not in removed_recipes:
            needs.add_recipe(path)
    for name in keep:
        needs.add_kept(name)


def _find_runs(
    name: str, recorded: Sequence[_RecordedArtifact], folder: Path, runs_dir: Path
) -> set[Provenance]:
    """Find the recorded runs that a user names, as `nmtkit runs` prints them.

    Args:
        name: A recipe, optionally with `--set`.
        folder: The folder of the recipes; paths in `name` are relative to it.
        runs_dir: The folder of artifacts, for messages.

    Raises:
        UserError: There is none.
    """
    recipe, typed = split_overrides(name)
    # Recorded paths are absolute; the order of overrides does not count.
    overrides = sorted(absolute_override(override, folder) for override in typed)
    recipes = {recipe, str((folder / recipe).resolve())}
    matching_runs = set()
    for item in recorded:
        run = item.run
        if run is not None and run.recipe in recipes and sorted(run.overrides) == overrides:
            matching_runs.add(run)
    if not matching_runs:
        # Copied artifacts have the path of their recipe at its original place.
        hint = ""
        for item in recorded:
            if item.run is not None and Path(item.run.recipe).name == Path(recipe).name:
                hint = f" (did you mean {shlex.quote(item.run.run)}?)"
        raise UserError(
            f"no artifact in {runs_dir} was built by the run {name!r}{hint}; run `nmtkit runs` to "
            "list the runs"
        )
    return matching_runs


def _key(artifact: ListedArtifact) -> Key:
    """Return the stage and the fingerprint of an artifact; a draft has its suffix too."""
    return artifact.stage, Path(artifact.path).name


def _add_upstream(keys: set[Key], upstream: Mapping[Key, Sequence[Key]]) -> None:
    """Add to `keys` the inputs of its artifacts, and the inputs of those."""
    waiting = list(keys)
    while waiting:
        for source in upstream.get(waiting.pop(), ()):
            if source not in keys:
                keys.add(source)
                waiting.append(source)


def _decide_removed(
    item: _RecordedArtifact, removed: Set[Provenance], needs: Needs
) -> Decision | None:
    """Decide on an artifact if it belongs to a run that the user wants to delete.

    Args:
        removed: The runs to delete.
        needs: The artifacts that other runs need.

    Returns:
        The decision; None for the artifacts of other runs.
    """
    artifact = item.artifact
    if item.run not in removed:
        return None
    if _key(artifact) in needs.keys:
        return Decision(artifact, False, "another run or recipe needs it")
    if artifact.state == LOCKED:
        return Decision(artifact, False, RULES[LOCKED].reason)
    if artifact.state == PUBLISHED and (unlisted := _unlisted_files(Path(artifact.path))):
        return Decision(artifact, False, f"its manifest does not list {unlisted[0]}")
    return Decision(artifact, True, "it belongs to the run")


def _decide(item: _RecordedArtifact, needs: Needs, *, drafts: bool) -> Decision:
    """Decide on an artifact that no recipe was found to need.

    Args:
        needs: Has the reasons why it may be needed nevertheless.
        drafts: Also delete the drafts of stopped runs.
    """
    artifact = item.artifact
    rule = RULES.get(artifact.state)
    if rule is not None:
        is_freed = rule.is_freed_with_drafts if drafts else rule.is_freed
        return Decision(artifact, is_freed, rule.reason)
    # Other states have a rule, so from here on the artifact is published.
    if unlisted := _unlisted_files(Path(artifact.path)):
        return Decision(artifact, False, f"its manifest does not list {unlisted[0]}")
    if item.run is None:
        return Decision(artifact, False, "the recipe that built it is not recorded")
    if item.run in needs.unresolved:
        return Decision(artifact, False, needs.unresolved[item.run])
    # Any recipe that cannot be read may be the one that needs it.
    if needs.unreadable:
        return Decision(artifact, False, f"a recipe may need it: {needs.unreadable[0]}")
    return Decision(artifact, True, "its recipe or its texts were changed or deleted")


def _unlisted_files(path: Path) -> list[str]:
    """Return the files of a published folder that nmtkit did not write."""
    # The user may have saved them there, so the folder is not deleted.
    manifest = read_sealed(path / MANIFEST, Manifest)
    return unpublished_files(path, [*manifest.files, *read_run_record(path).measured])
