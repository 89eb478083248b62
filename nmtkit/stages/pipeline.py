"""The chain of stages: what each depends on, what is fresh and what is missing."""

import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtkit.config.recipe import BpeConfig, BundleConfig, Recipe
from nmtkit.config.settings import RUNS, Settings
from nmtkit.evaluation.seed import DEFAULT_SEED, SEED, seed
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import obtain, read_hashes
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.stages.note import read_note
from nmtkit.store.artifacts import Artifact, Store
from nmtkit.store.code_version import code_name, is_other_code, versions
from nmtkit.store.manifests import fingerprint_of
from nmtkit.store.provenance import provenance
from nmtkit.store.records import DamagedError, canonical_json
from nmtkit.training.metrics import CHECKPOINTS, DIVERGED, WHAT_HELPS
from nmtkit.training.signals import AGENT
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from nmtkit.decoding.bundle import Bundle

# Each stage, with the recipe sections that it depends on besides those of the stages before it.
STAGES: Mapping[str, tuple[str, ...]] = {
    "prepare": ("corpus", "subword"),
    "train": ("model", "training"),
    "average": ("averaging", "decoding"),
    "translate": ("test",),
    "score": ("scoring",),
}
# The keys of those sections that name text; a stage depends on its content, not on the paths.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("train", "dev", "drop_held_out"),
    "translate": ("sets",),
}
# The same for the keys that name a bundle, each with its section.
BUNDLES: Mapping[str, tuple[str, str]] = {
    "prepare": ("subword", "path"),
    "train": ("training", "start_from"),
}

Build = Callable[[Path], Mapping[str, Any]]  # writes to a draft, and returns measurements


class Pipeline:
    """One recipe on one machine: its artifacts, found or built."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        command: str,
        overrides: Sequence[str] = (),
        *,
        force: Sequence[str] = (),
    ) -> None:
        """Chain the stages of a recipe.

        Args:
            recipe: The recipe with its overrides.
            machine: Where artifacts are stored and what computes them.
            command: The name or path of the recipe, as the user typed it.
            overrides: The values of `--set`.
            force: The stages to rebuild, see `delete_forced`.
        """
        self.recipe = recipe
        self.settings = settings
        self.command = command
        self.overrides = overrides
        self.force = force
        self._to_delete = force
        self.store = Store(settings.runs_dir)
        self.fetch = partial(fetch, settings=settings)
        self._depends: dict[str, dict[str, Any]] = {}  # by stage

    def variables(self) -> list[str]:
        """Return the environment variables that change what the artifacts depend on."""
        # ASCII, since a path may be no Unicode.
        text = json.dumps(self.recipe.model_dump(mode="json"))
        named = re.findall(r'"\$\{?(\w+)', text)
        return [*dict.fromkeys(named), SEED]

    @cached_property
    def corpora(self) -> dict[str, tuple[Corpus, ...]]:
        corpus = self.recipe.corpus
        find = partial(find_corpus, src_lang=corpus.src_lang, tgt_lang=corpus.tgt_lang)
        return {
            "train": tuple(map(find, corpus.train)),
            "dev": (find(corpus.dev),),
            "drop_held_out": tuple(map(find, corpus.drop_held_out)),
            "sets": tuple(map(find, self.recipe.test.sets)),
        }

    @cached_property
    def bundles(self) -> "dict[str, Bundle]":
        """The bundles that the recipe builds on, by the stage that reads them."""
        bundles = {}
        for stage, (section, key) in BUNDLES.items():
            if (path := getattr(getattr(self.recipe, section), key, None)) is not None:
                from nmtkit.stages.fine_tuning import open_parent  # imports what reads text

                bundles[stage] = open_parent(path, self.recipe)
        return bundles

    def depends_on(self, stage: str) -> dict[str, Any]:
        """Return everything that an artifact of `stage` depends on, from which it has its name."""
        if stage not in self._depends:
            self._depends[stage] = self._depends_on(stage)
        return self._depends[stage]

    def _depends_on(self, stage: str) -> dict[str, Any]:
        depends: dict[str, Any] = {name: self.recipe.section(name) for name in STAGES[stage]}
        for key in INPUTS.get(stage, ()):
            for section in STAGES[stage]:
                depends[section].pop(key, None)
            identities = [corpus.identity() for corpus in self.corpora[key]]
            depends.setdefault("inputs", {})[key] = identities
        if bundle := self.bundles.get(stage):
            section, key = BUNDLES[stage]
            del depends[section][key]
            files = bundle.artifact.manifest.files
            depends["bundle"] = {name: file.sha256 for name, file in files.items()}
        if stage == "translate":  # whose folders have the names of the sets
            depends["test"]["names"] = [corpus.name for corpus in self.corpora["sets"]]
        if stage == "score" and (resampling := seed()) != DEFAULT_SEED:
            depends["seed"] = resampling  # of the confidence intervals
        if stage == "train" and {*self.recipe.corpus.weights} != {1.0}:
            depends["inputs"] = {"weights": self.recipe.corpus.weights}
        if upstream := upstream_of(stage):
            depends["upstream"] = {upstream: self.fingerprint(upstream)}
        return depends

    def expected_vocabulary(self) -> int:
        """Return the size of the vocabulary; 32,000 merges on news yield about 37,000 tokens."""
        subword = self.recipe.subword
        if isinstance(subword, BpeConfig):
            return round(subword.n_merges * 37 / 32)
        if isinstance(subword, BundleConfig):
            return self.bundles["prepare"].text.subword.n_tokens
        return subword.n_tokens

    def fingerprint(self, stage: str) -> str:
        return fingerprint_of(stage, self.depends_on(stage))

    def find(self, stage: str) -> Artifact | None:
        """Return the artifact of `stage`, unless it is missing or stale."""
        artifact = self.store.find(stage, self.fingerprint(stage))
        if artifact is None or self.stale_input(stage) is not None:
            return None
        warn_of_other_code([artifact])
        return artifact

    def inputs(self, stage: str) -> dict[str, str]:
        """Return the content of the upstream artifact, if there is one, as manifests record it."""
        upstream = upstream_of(stage)
        if upstream is None or (source := self.find(upstream)) is None:
            return {}
        return {upstream: content_hash(source)}

    def stale_input(self, stage: str) -> str | None:
        """Return the stage that was rebuilt, with other content, since `stage` read it, if any.

        `--force`, or deleting an artifact by hand, leaves what was built from the old one. All of
        it keeps its fingerprint, so the manifests record the content of what was read.
        """
        upstream = upstream_of(stage)
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
        """Return the artifact of `stage`, or raise a UserError that names the command to run."""
        artifact = self.find(stage)
        if artifact is not None:
            return artifact
        folder = self.settings.runs_dir
        problem = f"nothing from `{stage}` is in {folder} yet"
        if (rebuilt := self.stale_input(stage)) is not None:
            problem = f"the artifact of `{stage}` in {folder} is older than that of `{rebuilt}`"
        raise UserError(
            f"recipe {self.recipe.name}: {problem}; run `{self.command_of(stage)}` first, or "
            "`nmtkit run` for all stages"
        )

    def delete_forced(self) -> None:
        """Delete the artifacts that `--force` rebuilds; they are built anew like missing ones.

        If the rebuilding is stopped, the same command without `--force` finishes it. A training
        that was stopped is started over if another version or commit began it.
        """
        stages, self._to_delete = self._to_delete, ()
        if not stages:
            return
        if (upstream := upstream_of(stages[0])) is not None:
            self.need(upstream)  # or else nothing could be rebuilt
        for stage in reversed(stages):
            fingerprint = self.fingerprint(stage)
            draft = self.store.draft_place(stage, fingerprint)
            with self.store.writing(stage, fingerprint):
                if os.path.lexists(self.store.place(stage, fingerprint)):
                    progress.log(f"{stage}: deleting {self.store.place(stage, fingerprint)}")
                    self.store.free(self.store.place(stage, fingerprint))
                note = read_note(draft) if stage == "train" else None
                if note is not None and (
                    is_other_code(note.code) or note.inputs not in ({}, self.inputs(stage))
                ):
                    progress.log(f"{stage}: deleting {draft}")
                    self.store.free(draft)

    def command_of(self, stage: str) -> str:
        """Return what to type to run `stage` of the same recipe, with the same overrides."""
        typed = ["nmtkit", stage, self.command, *(f"--set={each}" for each in self.overrides)]
        if self.settings.runs_dir != RUNS:
            typed.append(f"--runs-dir={self.settings.runs_dir}")
        return shlex.join(typed)

    def make(
        self, stage: str, build: Build, *, resume: bool = False, measured: Sequence[str] = ()
    ) -> Artifact:
        """Return the artifact of `stage`, built if it is missing or stale.

        Args:
            stage: The stage.
            build: Writes the files of the artifact to a draft, and returns measurements.
            resume: Whether `build` continues an unfinished draft.
            measured: Files of the draft whose content is a measurement, such as seconds.
        """
        if (existing := self.find(stage)) is not None:
            return existing
        fingerprint = self.fingerprint(stage)
        depends_on = self.depends_on(stage)
        if bundle := self.bundles.get(stage):
            warn_of_other_code([bundle.artifact])
        if (upstream := upstream_of(stage)) is not None:
            self.need(upstream)  # before a stale artifact is deleted
        inputs = self.inputs(stage)
        run = provenance(
            self.recipe.name, self.command, self.overrides, self.variables()
        ).model_dump()
        note = {"run": run, "upstream": depends_on.get("upstream", {})}
        with self.store.draft(stage, fingerprint, resume=resume, note=note) as draft:
            if (existing := self.find(stage)) is not None:  # another process built it meanwhile
                return existing
            self.store.free(self.store.place(stage, fingerprint))  # if it is stale
            begin = time.monotonic()
            measurements = {"run": run, **build(draft)}
            made_by: dict[str, str] = {}
            if stage == "train" and (training := read_note(draft)) is not None:
                # Several runs may have trained it, with other precisions or commits.
                made_by = {**training.code, "precision": training.precision}
            corpora = [corpus for key in INPUTS.get(stage, ()) for corpus in self.corpora[key]]
            files = (file for corpus in corpora for file in corpus.downloads)
            return self.store.publish(
                stage,
                fingerprint,
                depends_on=depends_on,
                measurements={"seconds": round(time.monotonic() - begin, 3), **measurements},
                inputs=inputs,
                made_by=made_by,
                downloads=read_hashes(files, self.settings.downloads_dir, self.settings.mirror),
                measured=measured,
            )


def content_hash(artifact: Artifact) -> str:
    """Return the hash of the files that the next stage reads, not of statistics for the user."""
    from nmtkit.corpus.prepared import COUNTS, SAMPLES  # imports what reads text

    read = {
        name: file.sha256
        for name, file in artifact.manifest.files.items()
        if name not in (COUNTS, SAMPLES)
    }
    return hashlib.sha256(canonical_json(read).encode("utf-8")).hexdigest()


def upstream_of(stage: str) -> str | None:
    """Return the stage whose artifact `stage` is built from; None of the first stage."""
    names = list(STAGES)
    return names[names.index(stage) - 1] if stage != names[0] else None


def warn_of_other_code(artifacts: Iterable[Artifact]) -> None:
    """Print one warning per command, if another version or commit of nmtkit built an artifact."""
    global _is_warned_of_code  # noqa: PLW0603 - a command is a process
    if AGENT in os.environ:  # the process that started this one prints it
        return
    for artifact in artifacts:
        made_by = artifact.manifest.made_by
        if not _is_warned_of_code and is_other_code(made_by):
            _is_warned_of_code = True
            progress.warn(
                f"{artifact.path} was built by {code_name(made_by)}, and this is "
                f"{code_name(versions())}; pass --force to the command that built it to rebuild it"
            )


_is_warned_of_code = False


def fetch(file: RemoteFile, settings: Settings) -> Path:
    what = f"download {Path(file.url).name}"
    with progress.task(what, unit="bytes", total=file.n_bytes) as task:
        return obtain(
            file,
            settings.downloads_dir,
            settings.mirror,
            task.advance,
            progress.log,
            progress.warn,
        )


def why_diverged(pipeline: Pipeline, draft: Path) -> str | None:
    """Return why the training in `draft` was refused as diverged, and what to do, if it was."""
    if (note := draft / CHECKPOINTS / DIVERGED).is_file():
        what = note.read_text(encoding="utf-8")
        return f"{what}; `{pipeline.command_of('train')}` tries again; {WHAT_HELPS}"
    return None
