"""The chain of stages: what each depends on, what is fresh and what is missing."""

import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtkit import progress
from nmtkit.errors import UserError
from nmtkit.evaluation.seed import DEFAULT_SEED, seed
from nmtkit.machine import RUNS, Machine
from nmtkit.provenance import provenance
from nmtkit.recipe import BpeConfig, BundleConfig, Recipe
from nmtkit.reporting.code import code_notes
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import obtain, read_hashes
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.stages.code import other_code, present_code
from nmtkit.stages.note import read_note
from nmtkit.store import Artifact, Store, fingerprint_of
from nmtkit.training.metrics import CHECKPOINTS, DIVERGED, WHAT_HELPS

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


class Chain:
    """One recipe on one machine: its artifacts, found or made."""

    def __init__(
        self,
        recipe: Recipe,
        machine: Machine,
        command: str,
        overrides: Sequence[str] = (),
        *,
        remake: Collection[str] = (),
    ) -> None:
        """Chain the stages of `recipe`, which the user named `command`, and has `overrides`."""
        self.recipe, self.machine, self.code = recipe, machine, present_code()
        self.command, self.overrides, self.remake = command, overrides, remake
        self.store = Store(machine.runs_dir)
        self.fetch = partial(fetch, machine=machine)
        self._said_of_code: set[str] = set()
        self._depends: dict[str, dict[str, Any]] = {}  # by stage

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
                from nmtkit.stages.parent import open_parent  # imports what reads text

                bundles[stage] = open_parent(path, self.recipe)
        return bundles

    def depends_on(self, stage: str) -> dict[str, Any]:
        """Return everything that an artifact of `stage` depends on: its code only by `--remake`.

        It is found out once: another process may remake what this one is about to make.
        """
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
        if upstream := _before(stage):
            depends["upstream"] = {upstream: self.fingerprint(upstream)}
        with_code = {**depends, "code": self.code.get(stage)}
        is_remade = self.store.place(stage, fingerprint_of(stage, with_code)).is_dir()
        return with_code if is_remade or self._remakes(stage, depends) else depends

    def _remakes(self, stage: str, depends_on: Mapping[str, Any]) -> bool:
        """Return whether other code made the artifact, or began it, and it is to be made again."""
        if stage not in self.remake:
            return False
        fingerprint = fingerprint_of(stage, depends_on)
        made = self.store.find(stage, fingerprint)
        if made is None:
            draft = self.store.draft_place(stage, fingerprint)  # others begin anew by themselves
            note = read_note(draft) if stage == "train" else None
            return note is not None and note.code not in ({}, self.code[stage])
        upstream = self._upstream(stage)  # it may have been made anew since
        now = {**(upstream.manifest.code if upstream else {}), stage: self.code[stage]}
        return not now.items() <= made.manifest.code.items()

    def _upstream(self, stage: str) -> Artifact | None:
        upstream = _before(stage)
        return self.find(upstream) if upstream else None

    def tell_code(self, artifact: Artifact) -> None:
        """Say once if other code made an artifact that is used, or what it was made from."""
        for note in code_notes(other_code(artifact.manifest)):
            if note not in self._said_of_code:
                progress.warn(f"{artifact.path} was {note}")
                self._said_of_code.add(note)

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
        return self.store.find(stage, self.fingerprint(stage))

    def need(self, stage: str) -> Artifact:
        """Return the artifact of `stage`, or raise a UserError that names the command to run."""
        artifact = self.find(stage)
        if artifact is None:
            raise UserError(
                f"recipe {self.recipe.name}: nothing from `{stage}` is in {self.machine.runs_dir} "
                f"yet; run `{self.command_of(stage)}` first, or `nmtkit run` for all stages"
            )
        return artifact

    def command_of(self, stage: str) -> str:
        """Return what to type to run `stage` of the same recipe, with the same overrides."""
        typed = ["nmtkit", stage, self.command, *(f"--set={each}" for each in self.overrides)]
        if self.machine.runs_dir != RUNS:
            typed.append(f"--runs-dir={self.machine.runs_dir}")
        return shlex.join(typed)

    def make(
        self, stage: str, build: Build, *, resume: bool = False, measured: Sequence[str] = ()
    ) -> Artifact:
        """Return the artifact of `stage`; `build` makes it and returns measurements."""
        fingerprint, depends_on = self.fingerprint(stage), self.depends_on(stage)
        if existing := self.store.find(stage, fingerprint):
            self.tell_code(existing)
            return existing
        if bundle := self.bundles.get(stage):
            self.tell_code(bundle.artifact)
        if upstream := self._upstream(stage):
            self.tell_code(upstream)
        before = upstream.manifest.code if upstream else {}
        run = provenance(self.recipe.name, self.command, self.overrides).model_dump()
        note = {"run": run, "upstream": depends_on.get("upstream", {})}
        with self.store.draft(stage, fingerprint, resume=resume, note=note) as draft:
            if existing := self.store.find(stage, fingerprint):  # made since, by another process
                return existing
            begin = time.monotonic()
            measurements = {"run": run, **build(draft)}
            noted = read_note(draft) if stage == "train" else None  # several runs may make it
            corpora = [corpus for key in INPUTS.get(stage, ()) for corpus in self.corpora[key]]
            files = (file for corpus in corpora for file in corpus.downloads)
            return self.store.publish(
                stage,
                fingerprint,
                depends_on=depends_on,
                measurements={"seconds": round(time.monotonic() - begin, 3), **measurements},
                code={**before, stage: noted.code if noted else self.code[stage]},
                made_by={"precision": noted.precision} if noted else {},
                downloads=read_hashes(files, self.machine.downloads_dir, self.machine.mirror),
                measured=measured,
            )


def _before(stage: str) -> str | None:
    names = list(STAGES)
    return names[names.index(stage) - 1] if stage != names[0] else None


def fetch(file: RemoteFile, machine: Machine) -> Path:
    what = f"download {Path(file.url).name}"
    with progress.task(what, unit="bytes", total=file.n_bytes) as task:
        return obtain(
            file,
            machine.downloads_dir,
            machine.mirror,
            task.advance,
            progress.say,
            progress.warn,
        )


def why_diverged(chain: Chain, draft: Path) -> str | None:
    """Return why the training in `draft` was refused as diverged, and what to do, if it was."""
    if (note := draft / CHECKPOINTS / DIVERGED).is_file():
        what = note.read_text(encoding="utf-8")
        return f"{what}; `{chain.command_of('train')}` tries again; {WHAT_HELPS}"
    return None
