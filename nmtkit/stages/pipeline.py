"""The pipeline of a recipe: finds its artifacts, and builds those that are missing or stale."""

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmtkit.config.loading import absolute_override, recipe_path
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import RUNS, Settings
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import Corpus
from nmtkit.stages.dependencies import INPUTS, STAGES, Dependencies, upstream_stage
from nmtkit.stages.note import read_note
from nmtkit.store.artifacts import Artifact, Store
from nmtkit.store.code_version import code_name, is_other_code, versions
from nmtkit.store.manifests import read_manifest
from nmtkit.store.provenance import provenance
from nmtkit.store.records import DamagedError, canonical_json
from nmtkit.store.run_records import read_run_record, with_sources
from nmtkit.store.verification import verify
from nmtkit.training.signals import AGENT
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

OTHER_CODE = "other code"  # a kind of warning, see `progress.warn_once`
MAX_OTHERS = 5  # artifacts under other values that a message lists
Build = Callable[[Path], Mapping[str, Any]]  # writes to a draft, and returns measurements


class Pipeline(Dependencies):
    """The stages of one recipe on one machine: finds and builds their artifacts."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        command: str,
        overrides: Sequence[str] = (),
        *,
        force: Sequence[str] = (),
    ) -> None:
        """Create the pipeline of a recipe; no artifact is read.

        Args:
            recipe: The recipe with its overrides.
            settings: The folder of artifacts, and the device and processes that compute them.
            command: The name or path of the recipe, as the user typed it.
            overrides: The values of `--set`.
            force: The stages to rebuild, see `delete_forced`.
        """
        super().__init__(recipe)
        self.settings = settings
        self.command = command
        self.overrides = overrides
        self.force = force
        self._to_delete = force
        self.store = Store(settings.runs_dir)
        self.downloads = Downloads(
            settings.downloads_dir, settings.mirror, needed=self._all_remote_files
        )

    def _all_remote_files(self) -> list[RemoteFile]:
        """Return the downloads of all stages."""
        files: list[RemoteFile] = []
        for stage in STAGES:
            files += self.remote_files(stage)
        return files

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
        remedy = f"run `{self.stage_command(stage)}` first, or `nmtkit run` for all stages"
        if others:
            remedy = f"pass the same --set, or {remedy}"
        raise UserError(f"recipe {self.recipe.name}: {problem}; {remedy}")

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
            remedy = f"run `{self.stage_command('run')}` for the new text"
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

    def delete_forced(self) -> None:
        """Delete the artifacts that `--force` rebuilds; they are then built like missing ones.

        If rebuilding is stopped, the same command without `--force` finishes it. The draft of a
        training is deleted if other code, or another corpus, was used for it.
        """
        # `run` and each of its stages call this method: only the first call may delete.
        stages = self._to_delete
        self._to_delete = ()
        if not stages:
            return
        self._verify_inputs(stages)
        # An artifact is deleted before its input, so that a kill leaves no artifact without it.
        for stage in reversed(stages):
            fingerprint = self.fingerprint(stage)
            place = self.store.place(stage, fingerprint)
            draft = self.store.draft_place(stage, fingerprint)
            with self.store.writing(stage, fingerprint):
                if os.path.lexists(place):
                    progress.log(f"{stage}: deleting {place}")
                    self.store.free(place)
                # Drafts of other stages record their inputs in a journal, and start over.
                note = read_note(draft) if stage == "train" else None
                if note is None:
                    continue
                # Notes of earlier versions record no inputs.
                has_other_inputs = bool(note.inputs) and note.inputs != self.inputs(stage)
                if is_other_code(note.code) or has_other_inputs:
                    progress.log(f"{stage}: deleting {draft}")
                    self.store.free(draft)

    def _verify_inputs(self, stages: Sequence[str]) -> None:
        """Verify everything that stages read, so that they can be rebuilt after they are deleted.

        Args:
            stages: The stages, in their order.

        Raises:
            UserError: An input is missing or damaged.
        """
        upstream = upstream_stage(stages[0])
        if upstream is not None:
            verify(self.need(upstream))
        for stage in stages:
            if stage in self.bundles:
                verify(self.bundles[stage].artifact)
            # Reading texts may take minutes, so they are read only if there is something to lose.
            if not self.store.place(stage, self.fingerprint(stage)).exists():
                continue
            for key in INPUTS.get(stage, ()):
                for corpus in self.corpora[key]:
                    # Errors may be at the end of a text, such as a missing line.
                    with progress.prefix(stage):
                        for _ in corpus.rows(self.downloads):
                            pass

    def stage_command(self, stage: str) -> str:
        """Return the shell command that runs `stage` of this recipe with the same overrides."""
        return shlex.join(["nmtkit", stage, *self._arguments()])

    def translate_command(self) -> str:
        """Return the shell command that translates any text with the model of this recipe."""
        return shlex.join(["nmtkit", "translate", "--recipe", *self._arguments()])

    def report_command(self) -> str:
        """Return the shell command that reports all runs in the folder of this one."""
        return shlex.join(["nmtkit", "report", *self._runs_dir_arguments()])

    def _arguments(self) -> list[str]:
        """Return the recipe, as the user typed it, and the options that select its artifacts."""
        overrides = [f"--set={override}" for override in self.overrides]
        return [self.command, *overrides, *self._runs_dir_arguments()]

    def _runs_dir_arguments(self) -> list[str]:
        """Return the option that selects the folder of artifacts, unless it is the default."""
        if self.settings.runs_dir == RUNS:
            return []
        return [f"--runs-dir={self.settings.runs_dir}"]

    def child_arguments(self, command: Sequence[str]) -> list[str]:
        """Return the arguments of nmtkit in a child process that runs a command on this recipe.

        Args:
            command: The name of the command and its options.
        """
        arguments = ["--quiet"] if progress.console.quiet else []
        arguments += command
        arguments += [f"--set={override}" for override in self.overrides]
        arguments += ["--", self.command]  # the name of a recipe may begin with "-"
        return arguments

    def build(
        self, stage: str, build: Build, *, resume: bool = False, measured: Sequence[str] = ()
    ) -> Artifact:
        """Return the artifact of `stage`, and build it if it is missing or stale.

        Args:
            stage: The stage.
            build: Writes the files of the artifact to a draft, and returns measurements.
            resume: Whether `build` continues an unfinished draft.
            measured: Files of the draft whose content is a measurement, such as seconds. Their
                hashes are not part of the manifest, which is the same in all runs.
        """
        existing = self.find(stage)
        if existing is not None:
            return existing
        fingerprint = self.fingerprint(stage)
        depends_on = self.depends_on(stage)
        bundle = self.bundles.get(stage)
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
            made_by = _training_code(draft) if stage == "train" else {}
            return self.store.publish(
                stage,
                fingerprint,
                depends_on=depends_on,
                measurements=measurements,
                inputs=inputs,
                made_by=made_by,
                downloads=self.downloads.read_hashes(self.remote_files(stage)),
                measured=measured,
            )

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
            self.variables(),
        )
        return record.model_dump()


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


def _training_code(draft: Path) -> dict[str, str]:
    """Return the versions and the precision that the note in the draft of a training records."""
    # Several runs may have trained it, with other precisions or commits.
    note = read_note(draft)
    return {} if note is None else {**note.code, "precision": note.precision}


def content_hash(artifact: Artifact) -> str:
    """Return a hash of the files that the next stage reads."""
    # Counts and samples of a prepared corpus are statistics for the user.
    from nmtkit.corpus.prepared import COUNTS, SAMPLES  # imports the readers of text

    hashes = {}
    for name, file in artifact.manifest.files.items():
        if name not in (COUNTS, SAMPLES):
            hashes[name] = file.sha256
    return hashlib.sha256(canonical_json(hashes).encode("utf-8")).hexdigest()


def warn_of_other_code(artifacts: Iterable[Artifact]) -> None:
    """Print one warning per process, even with `-q`, if other code of nmtkit built an artifact."""
    # A process that runs others, such as `study`, prints the warning for all of them.
    if AGENT in os.environ:
        return
    for artifact in artifacts:
        made_by = artifact.manifest.made_by
        if is_other_code(made_by):
            remedy = "pass --force to the command that built it"
            # `import` and `average --output` write each bundle to a new folder.
            if artifact.manifest.fingerprint is None:
                remedy = "run the command that built it with another folder"
            progress.warn_once(
                f"{artifact.path} was built by {code_name(made_by)}, and this is "
                f"{code_name(versions())}; {remedy} to rebuild it",
                kind=OTHER_CODE,
                even_if_quiet=True,
            )
            return
