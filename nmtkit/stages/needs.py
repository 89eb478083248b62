"""The artifacts that recipes and recorded runs need, as far as their texts can be read."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nmtkit.config.loading import MAX_TOML_BYTES, load_recipe, read_toml
from nmtkit.config.settings import Settings
from nmtkit.stages.dependencies import STAGES, Dependencies
from nmtkit.store.manifests import MANIFEST, Manifest
from nmtkit.store.provenance import Provenance, split_overrides
from nmtkit.store.records import read_sealed
from nmtkit.utils.errors import UserError

Place = tuple[str, str]  # a stage and a fingerprint

RECIPE_KEY = "corpus"  # a TOML file without it is not a recipe


@dataclass
class Needs:
    """The artifacts that recipes need, and the reasons why others may be needed."""

    folder: Path  # recipes in it and in its subfolders are read
    settings: Settings  # the folder of artifacts
    places: set[Place] = field(default_factory=set)
    unresolved: dict[Provenance, str] = field(default_factory=dict)  # reasons, by recorded run
    unreadable: list[str] = field(default_factory=list)  # errors in recipes of the folder

    def find_recipes(self) -> list[Path]:
        """Find the recipes in the folder and its subfolders, but hidden ones and artifacts."""
        recipes = []
        for place, folders, names in os.walk(self.folder):
            # os.walk descends into the folders that are left in this list.
            visible = []
            for name in sorted(folders):
                is_runs_dir = _is_same(Path(place, name), self.settings.runs_dir)
                if not name.startswith(".") and not is_runs_dir:
                    visible.append(name)
            folders[:] = visible
            for name in sorted(names):
                path = Path(place, name)
                try:
                    is_candidate = path.suffix == ".toml" and path.is_file()
                    is_small = is_candidate and path.stat().st_size <= MAX_TOML_BYTES
                    if is_small and RECIPE_KEY in read_toml(path):
                        recipes.append(path)
                except (UserError, OSError) as error:
                    # It may be the recipe that needs an artifact, so nothing is freed next to it.
                    self.unreadable.append(str(error))
        return recipes

    def add_kept(self, name: str) -> None:
        """Add the run of a `--keep`: the folder of an artifact, or a recipe with its overrides."""
        # A folder is kept as it is, whatever its recipe has become since.
        if (Path(name) / MANIFEST).is_file():
            manifest = read_sealed(Path(name) / MANIFEST, Manifest)
            self.places.add((manifest.kind, str(manifest.fingerprint)))
            return
        recipe, overrides = split_overrides(name)
        self._add(Dependencies(load_recipe(recipe, overrides)))

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
            self._add(Dependencies(recipe))

    def add_run(self, run: Provenance) -> None:
        """Add the artifacts that a recorded run would find today, with the environment of then."""
        is_gone = Path(run.recipe).is_absolute() and not Path(run.recipe).exists()
        if is_gone and Path(run.recipe).is_relative_to(self.folder):
            return  # the user deleted it, or has renamed it: then it is found in its new place
        if is_gone:
            # The disk that it is on may not be mounted.
            self.unresolved[run] = f"its recipe {run.recipe} is gone"
            return
        try:
            with _environment(dict(run.variables)):
                recipe = load_recipe(run.recipe, run.overrides)
                self._add(Dependencies(recipe))
        except (UserError, OSError) as error:
            self.unresolved[run] = f"its recipe or a text of it cannot be read: {error}"

    def _add(self, dependencies: Dependencies) -> None:
        """Add the artifacts of a recipe, and the bundles that it starts from.

        Raises:
            UserError: A text or a bundle of the recipe cannot be read.
            OSError: Likewise.
        """
        for bundle in dependencies.bundles.values():
            manifest = bundle.artifact.manifest
            self.places.add((manifest.kind, str(manifest.fingerprint)))
        for stage in STAGES:
            self.places.add((stage, dependencies.fingerprint(stage)))


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and path.samefile(other)


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables for the duration of a block; None unsets a variable."""
    # Other runs have other values, so that they must not see these.
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
