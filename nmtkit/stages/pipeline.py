"""The pipeline of a recipe: what each stage depends on, and the artifacts that it finds or builds.

The fingerprint of an artifact follows from the recipe and its inputs, and not from what exists in a
folder of artifacts.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtkit.config.loading import absolute_override, recipe_path
from nmtkit.config.recipe import BpeConfig, BundleConfig, Recipe
from nmtkit.config.settings import Settings
from nmtkit.evaluation.seed import DEFAULT_SEED, SEED, seed
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.stages.commands import Commands
from nmtkit.store.artifacts import Artifact, Store
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.store.manifests import compute_fingerprint, read_manifest
from nmtkit.store.provenance import provenance, read_run_record, run_arguments, with_sources
from nmtkit.store.records import DamagedError, canonical_json
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from nmtkit.decoding.bundle import Bundle

# The stages in order, and the sections of the recipe that they depend on in addition to those of
# the stages before them.
STAGES: Mapping[str, tuple[str, ...]] = {
    "prepare": ("corpus", "subword"),
    "train": ("model", "training"),
    "average": ("averaging", "decoding"),
    "translate": ("test",),
    "score": ("scoring",),
}
# The keys in these sections that name text. A stage depends on its content, not on its path.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("train", "dev", "drop_held_out"),
    "translate": ("sets",),
}
# The key that names a bundle, with its section. A stage depends on the content of the bundle.
BUNDLES: Mapping[str, tuple[str, str]] = {
    "prepare": ("subword", "path"),
    "train": ("training", "start_from"),
}
MAX_OTHERS = 5  # artifacts under other values that a message lists


class Pipeline:
    """The stages of one recipe on one machine: finds and builds their artifacts.

    Attributes:
        recipe: The recipe with its overrides.
        settings: The folder of artifacts, and the device and processes that compute them.
        command: The name or path of the recipe, as the user typed it.
        overrides: The values of `--set`.
        force: The stages that this command rebuilds, see `stages/forcing.py`.
        undeleted: Those of them whose artifacts are still to be deleted.
        commands: The shell commands on this recipe.
        store: The artifacts of all recipes.
        downloads: The texts that are downloaded.
    """

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        command: str,
        overrides: Sequence[str] = (),
        *,
        force: Sequence[str] = (),
    ) -> None:
        """Create the pipeline of a recipe; neither texts nor artifacts are read."""
        self.recipe = recipe
        self.settings = settings
        self.command = command
        self.overrides = overrides
        self.force = force
        self.undeleted = force
        self.commands = Commands(command, overrides, settings.runs_dir)
        self.store = Store(settings.runs_dir)
        # Pipelines are sent to child processes, for which a lambda would not do.
        needed = partial(self.remote_files, *STAGES)
        self.downloads = Downloads(settings.downloads_dir, settings.mirror, needed=needed)
        self._depends: dict[str, dict[str, Any]] = {}  # by stage

    @cached_property
    def corpora(self) -> dict[str, tuple[Corpus, ...]]:
        """The corpora of the recipe, by the key that names them."""
        corpus = self.recipe.corpus
        names = {
            "train": corpus.train,
            "dev": corpus.dev_sources,
            "drop_held_out": corpus.drop_held_out,
            "sets": self.recipe.test.sets,
        }
        langs = (corpus.src_lang, corpus.tgt_lang)
        # No text is read here: the corpora open their files when their pairs are needed.
        corpora = {}
        for key, sources in names.items():
            corpora[key] = tuple(find_corpus(source, *langs) for source in sources)
        return corpora

    @cached_property
    def bundle_paths(self) -> dict[str, str]:
        """The paths of the bundles that the recipe builds on, by the stage that reads them."""
        paths = {}
        for stage, (section, key) in BUNDLES.items():
            path = getattr(getattr(self.recipe, section), key, None)
            if path is not None:
                paths[stage] = path
        return paths

    @cached_property
    def _bundles(self) -> "dict[str, Bundle]":
        """The bundles that the recipe builds on and that exist, by the stage that reads them."""
        bundles = {}
        for stage, path in self.bundle_paths.items():
            if Path(path).exists():
                from nmtkit.stages.fine_tuning import open_parent  # imports the readers of text

                bundles[stage] = open_parent(path, self.recipe)
        return bundles

    def bundle(self, stage: str) -> "Bundle | None":
        """Return the bundle that a stage reads, if any.

        Raises:
            UserError: It is missing or damaged, or has other values than the recipe.
        """
        if stage in self.bundle_paths and stage not in self._bundles:
            raise self._missing_bundle(stage, f"and `{stage}` reads it")
        return self._bundles.get(stage)

    def depends_on(self, stage: str) -> dict[str, Any]:
        """Return everything that an artifact of `stage` depends on, and its fingerprint hashes."""
        # Most methods need this, and it hashes files of text, so it is computed once.
        if stage in self._depends:
            return self._depends[stage]
        depends: dict[str, Any] = {}
        for name in STAGES[stage]:
            depends[name] = self.recipe.section(name)

        # The identities of texts and bundles replace their names and paths.
        for key in INPUTS.get(stage, ()):
            for section in STAGES[stage]:
                depends[section].pop(key, None)
            identities = [corpus.identity() for corpus in self.corpora[key]]
            depends.setdefault("inputs", {})[key] = identities
        if stage == "translate":
            # The artifact has a folder for each set, named after it.
            depends["test"]["names"] = [corpus.name for corpus in self.corpora["sets"]]
        if stage == "score" and seed() != DEFAULT_SEED:
            # The resampling of confidence intervals depends on it.
            depends["seed"] = seed()
        # Weights of training corpora are part of [corpus], but only `train` depends on them.
        weights = self.recipe.corpus.weights
        if stage == "train" and set(weights) != {1.0}:
            depends["inputs"] = {"weights": weights}
        upstream = upstream_stage(stage)
        if upstream is not None:
            depends["upstream"] = {upstream: self.fingerprint(upstream)}
        if stage in self.bundle_paths:
            section, key = BUNDLES[stage]
            del depends[section][key]
            depends["bundle"] = self._bundle_hashes(stage, depends)
        self._depends[stage] = depends
        return depends

    def _bundle_hashes(self, stage: str, depends: Mapping[str, Any]) -> dict[str, str]:
        """Return the hashes of the files of the bundle that a stage reads, by their names.

        The artifacts may have been copied without the bundle. Then the hashes are those that an
        artifact of this recipe records, if the file of the recipe has not changed since: another
        path in it could be that of another bundle.

        Args:
            depends: Everything else that the stage depends on.

        Raises:
            UserError: The bundle is missing, and no artifact, or several, record its hashes.
        """
        if stage in self._bundles:
            files = self._bundles[stage].artifact.manifest.files
            return {name: file.sha256 for name, file in files.items()}
        if stage == "train" and self.bundle_paths["train"] == self.bundle_paths.get("prepare"):
            hashes: dict[str, str] = self.depends_on("prepare")["bundle"]
            return hashes

        recorded = []
        for folder in self._own_folders(stage):
            with suppress(DamagedError):
                manifest = read_manifest(folder)
                hashes = manifest.depends_on.pop("bundle", {})
                if manifest.depends_on == depends and hashes not in recorded:
                    recorded.append(hashes)
        if not recorded:
            raise self._missing_bundle(
                stage, f"and {self.store.folder} has no artifact that this recipe built from it"
            )
        if len(recorded) > 1:
            raise self._missing_bundle(
                stage,
                f"and {self.store.folder} has artifacts of {len(recorded)} bundles from there",
            )
        return recorded[0]

    def _own_folders(self, stage: str) -> list[Path]:
        """Return the artifacts of a stage that this file of a recipe built or used.

        An artifact that several recipes use records only the one that built it, so those of later
        stages are followed to their inputs.
        """
        own = self._provenance()
        overrides = _bundle_overrides(stage, own["overrides"])
        folders = []
        for later in STAGES:
            for artifact in self.store.all(later):
                run = read_run_record(artifact.path).run
                if run is None or run.sha256 is None or run.sha256 != own["sha256"]:
                    continue
                if _bundle_overrides(stage, run.overrides) == overrides:
                    folders += with_sources(artifact.path, self.store.folder)
        return [folder for folder in dict.fromkeys(folders) if folder.parent.name == stage]

    def _missing_bundle(self, stage: str, why: str) -> UserError:
        """Return the error for a bundle that does not exist but is needed."""
        section, key = BUNDLES[stage]
        path = self.bundle_paths[stage]
        return UserError(
            f"recipe {self.recipe.name}: the bundle [{section}] {key} = {path} does not exist, "
            f"{why}; copy the bundle there, or correct the path"
        )

    def fingerprint(self, stage: str) -> str:
        """Return the fingerprint of the artifact of `stage`: the name of its folder."""
        return compute_fingerprint(stage, self.depends_on(stage))

    def remote_files(self, *stages: str) -> list[RemoteFile]:
        """Return the downloads of the texts that some stages read."""
        files: list[RemoteFile] = []
        for stage in stages:
            for key in INPUTS.get(stage, ()):
                for corpus in self.corpora[key]:
                    files += corpus.downloads
        return files

    def expected_vocabulary(self) -> int:
        """Estimate the size of the vocabulary before it is learned."""
        subword = self.recipe.subword
        if isinstance(subword, BpeConfig):
            # The characters of the text come on top: 37,000 tokens for 32,000 merges on news.
            return round(subword.n_merges * 37 / 32)
        if isinstance(subword, BundleConfig):
            if "prepare" in self._bundles:
                return self._bundles["prepare"].text.subword.n_tokens
            from nmtkit.corpus.prepared import PreparedCorpus  # imports the readers of text

            return PreparedCorpus(self.need("prepare")).counts().vocabulary
        return subword.n_tokens

    def find(self, stage: str) -> Artifact | None:
        """Return the artifact of `stage`, or None if it is missing or stale."""
        artifact = self.store.find(stage, self.fingerprint(stage))
        if artifact is None or self.stale_input(stage) is not None:
            return None
        warn_of_other_code([artifact])
        return artifact

    def inputs(self, stage: str) -> dict[str, str]:
        """Return the content hash of the upstream artifact, as manifests record it.

        Returns:
            The hash by the name of the stage. It is empty for the first stage, and if the upstream
            artifact is missing.
        """
        upstream = upstream_stage(stage)
        if upstream is None:
            return {}
        source = self.find(upstream)
        if source is None:
            return {}
        return {upstream: content_hash(source)}

    def stale_input(self, stage: str) -> str | None:
        """Return the upstream stage whose artifact has changed since `stage` read it, if any.

        `--force`, or deleting an artifact by hand, leaves the artifacts that were built from the
        old one. Their fingerprints stay valid, so the manifests record the content of their inputs.
        """
        upstream = upstream_stage(stage)
        if upstream is None:
            return None
        try:
            artifact = self.store.find(stage, self.fingerprint(stage))
            source = self.store.find(upstream, self.fingerprint(upstream))
        except DamagedError:  # reported where it is used
            return None
        if artifact and source:
            # Manifests of earlier versions record no inputs.
            content = content_hash(source)
            if artifact.manifest.inputs.get(upstream, content) != content:
                return upstream
        return self.stale_input(upstream)

    def need(self, stage: str) -> Artifact:
        """Return the artifact of `stage`.

        Raises:
            UserError: It is missing or stale. The message names the command that builds it.
        """
        artifact = self.find(stage)
        if artifact is not None:
            return artifact
        folder = self.settings.runs_dir
        problem = f"{folder} has no artifact of `{stage}`"
        rebuilt = self.stale_input(stage)
        if rebuilt is not None:
            problem = f"the artifact of `{stage}` in {folder} is older than that of `{rebuilt}`"
        changed = self.changed_text(stage)
        if changed is not None:
            change, remedy = changed
            raise UserError(f"recipe {self.recipe.name}: {problem}: {change}; {remedy}")
        # A --set that was forgotten looks like a missing artifact, so similar ones are listed.
        others = self._other_artifacts(stage)
        if others:
            problem += f" for these values, only for others: {', '.join(others)}"
        remedy = f"run `{self.commands.stage(stage)}` first, or `nmtkit run` for all stages"
        if others:
            remedy = f"pass the same --set, or {remedy}"
        raise UserError(f"recipe {self.recipe.name}: {problem}; {remedy}")

    def build(
        self,
        stage: str,
        build: Callable[[Path], Mapping[str, Any]],
        *,
        resume: bool = False,
        measured: Sequence[str] = (),
        made_by: Callable[[Path], Mapping[str, str]] = lambda _draft: {},
    ) -> Artifact:
        """Return the artifact of `stage`, and build it if it is missing or stale.

        Args:
            build: Writes the files of the artifact to a draft, and returns measurements.
            resume: Whether `build` continues an unfinished draft.
            measured: Files of the draft whose content is a measurement, such as seconds. Their
                hashes are not part of the manifest, which is the same in all runs.
            made_by: Returns the versions of the code that wrote the draft, where they are not
                those of this process only.
        """
        existing = self.find(stage)
        if existing is not None:
            return existing
        fingerprint = self.fingerprint(stage)
        depends_on = self.depends_on(stage)
        bundle = self.bundle(stage)
        if bundle is not None:
            warn_of_other_code([bundle.artifact])
        upstream = upstream_stage(stage)
        if upstream is not None:
            self.need(upstream)  # before a stale artifact is deleted
        inputs = self.inputs(stage)
        run = self._provenance()
        note = {"run": run, "upstream": depends_on.get("upstream", {})}
        with self.store.draft(stage, fingerprint, resume=resume, note=note) as draft:
            existing = self.find(stage)
            if existing is not None:  # another process built it in the meantime
                return existing
            # An artifact in this place that `find` did not return is stale.
            self.store.free(self.store.place(stage, fingerprint))
            begin = time.monotonic()
            measurements = {"run": run, **build(draft)}
            measurements = {"seconds": round(time.monotonic() - begin, 3), **measurements}
            return self.store.publish(
                stage,
                fingerprint,
                depends_on=depends_on,
                measurements=measurements,
                inputs=inputs,
                made_by=made_by(draft),
                downloads=self.downloads.read_hashes(self.remote_files(stage)),
                measured=measured,
            )

    def changed_text(self, stage: str) -> tuple[str, str] | None:
        """Describe the texts that changed since a stage of this recipe was built.

        Returns:
            The change and the remedy, for messages; None if no artifact differs from this recipe
            only in its texts.
        """
        for artifact in self.store.all(stage):
            run = read_run_record(artifact.path).run
            # By its name: its path may have changed, too, and all its values are compared.
            if run is None or run.name != self.recipe.name:
                continue
            folders = with_sources(artifact.path, self.settings.runs_dir)
            texts = self._differing_texts(folders)
            if not texts:
                continue
            remedy = f"run `{self.commands.stage('run')}` for the new text"
            bundles = [folder for folder in folders if folder.parent.name == "average"]
            if bundles:
                remedy += f", or pass --bundle {bundles[0]} to translate with the old model"
            return f"{', '.join(texts)} changed since {artifact.path} was built", remedy
        return None

    def _differing_texts(self, folders: Sequence[Path]) -> list[str]:
        """Return the texts of the recipe that some artifacts were not built from.

        Args:
            folders: An artifact, after all its inputs.

        Returns:
            Paths or names. They are empty if the artifacts differ from this recipe in other values,
            or if one of them is missing.
        """
        texts = []
        for folder in folders:
            stage = folder.parent.name
            try:
                manifest = read_manifest(folder)
            except DamagedError:
                return []
            # Fingerprints of inputs follow from what is compared for the stages before.
            own = {**self.depends_on(stage), "inputs": None, "upstream": None}
            if {**manifest.depends_on, "inputs": None, "upstream": None} != own:
                return []
            for key in INPUTS.get(stage, ()):
                read = manifest.depends_on["inputs"][key]
                for corpus, identity in zip(self.corpora[key], read, strict=False):
                    if corpus.identity() != identity:
                        texts += _differing_places(corpus, identity)
        return list(dict.fromkeys(texts))

    def _other_artifacts(self, stage: str) -> list[str]:
        """Describe the artifacts of this recipe under other values: run and path, newest first."""
        recipe = self._provenance()["recipe"]
        descriptions = []
        for artifact in self.store.all(stage):
            record = read_run_record(artifact.path)
            if record.run is not None and record.run.recipe == recipe:
                built = record.published.timestamp() if record.published else 0.0
                descriptions.append((built, f"`{record.run.run}` ({artifact.path})"))
        descriptions.sort(reverse=True)
        return [description for _, description in descriptions[:MAX_OTHERS]]

    @property
    def run(self) -> str:
        """The arguments of `nmtkit run` that give these artifacts, as `nmtkit runs` prints them."""
        made_by = self._provenance()
        return run_arguments(made_by["recipe"], made_by["overrides"])

    def _provenance(self) -> dict[str, Any]:
        """Return the provenance of an artifact that this process builds, ready for JSON."""
        try:
            path = recipe_path(self.command)
        except UserError:  # it was moved since it was read
            path = Path(self.command)
        record = provenance(
            self.recipe.name,
            self.command,
            path,
            [absolute_override(override, Path.cwd()) for override in self.overrides],
            _variables(self.recipe),
        )
        return record.model_dump()


def upstream_stage(stage: str) -> str | None:
    """Return the stage whose artifact `stage` reads, or None for the first stage."""
    names = list(STAGES)
    index = names.index(stage)
    return None if index == 0 else names[index - 1]


def content_hash(artifact: Artifact) -> str:
    """Return a hash of the files that the next stage reads."""
    # Counts and samples of a prepared corpus are statistics for the user.
    from nmtkit.corpus.prepared import COUNTS, SAMPLES  # imports the readers of text

    hashes = {}
    for name, file in artifact.manifest.files.items():
        if name not in (COUNTS, SAMPLES):
            hashes[name] = file.sha256
    return hashlib.sha256(canonical_json(hashes).encode("utf-8")).hexdigest()


def _bundle_overrides(stage: str, overrides: Sequence[str]) -> list[str]:
    """Return the overrides that name the bundle of a stage, by its key or by its whole section."""
    section, key = BUNDLES[stage]
    naming = []
    for override in overrides:
        if override.partition("=")[0].strip() in (section, f"{section}.{key}"):
            naming.append(override)
    return naming


def _variables(recipe: Recipe) -> list[str]:
    """Return the names of the environment variables that the artifacts of a recipe depend on."""
    # A path in a recipe may begin with a variable, as in "$DATA/train.en". JSON escapes everything
    # that is not ASCII, also parts of a path that are not Unicode.
    text = json.dumps(recipe.model_dump(mode="json"))
    names = re.findall(r'"\$\{?(\w+)', text)
    names.append(SEED)
    return list(dict.fromkeys(names))


def _differing_places(corpus: Corpus, identity: Sequence[str]) -> list[str]:
    """Return the files of a corpus whose hashes are not in its earlier identity."""
    present = corpus.identity()
    if len(corpus.places) != len(present) or len(present) != len(identity):
        return corpus.places or [corpus.name]
    differing = []
    for place, new, old in zip(corpus.places, present, identity, strict=True):
        if new != old:
            differing.append(place)
    return differing
