"""The state of a training: the note of what computed it, its progress, and how it resumes.

A longer training resumes from a shorter one that is finished or stopped and differs only by a
smaller max_steps. The shorter training saved and evaluated its last step. The longer one drops
that, unless it is due at this step anyway: its artifact is then the same as without the shorter
one. Nothing else is missing: the shorter training has saved all checkpoints that the longer one
schedules up to there.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel, Field

from nmtkit.config.recipe import TrainingConfig
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.code_version import own_code, versions
from nmtkit.store.files import DRAFT, write_whole
from nmtkit.store.manifests import (
    MANIFEST,
    MEASUREMENTS,
    TEMPORARY,
    Manifest,
    compute_fingerprint,
)
from nmtkit.store.records import DamagedError, Record, canonical_json, read_sealed, sealed
from nmtkit.training.metrics import (
    CHECKPOINTS,
    DEV_FIELDS,
    METRICS,
    read_metrics,
    read_published,
    write_metrics,
)
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import duration

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # precision and code of steps whose note is lost
TAIL_BYTES = 2**16  # end of metrics.jsonl that is read: a hundred steps or more


# The note


class Part(Record):
    """The settings that some consecutive steps of a training were computed with."""

    first_step: int
    device: str
    device_name: str
    processes: int
    dtype: str  # of activations
    deterministic: bool
    threads: int


class Note(Record):
    """Everything that a training depends on, and the precision, code and machines that computed it.

    Several precisions or commits, if they changed in between, are joined by "+".
    """

    depends_on: dict[str, Any]
    precision: str = ""
    code: dict[str, str] = Field(default={})  # by `CODE_KEYS`
    # By their first step. Those of earlier versions are unknown, except for the last one.
    parts: list[Part] = Field(default=[])
    inputs: dict[str, str] = Field(default={})  # as in the manifest
    sha256: str = ""  # of the other keys, in the file

    def continued(self, part: Part, code: Mapping[str, str]) -> "Note":
        """Return the note after a run has resumed.

        Args:
            part: The settings of the run. If its first step is 1, it replaces all earlier ones.
            code: Version, commit and hash of nmtkit in the run.
        """
        precision = part.dtype
        if part.first_step == 1:  # no step of an earlier run is left
            update = {"precision": precision, "code": dict(code), "parts": [part]}
            return self.model_copy(update=update)
        # Steps after the last checkpoint are trained once more.
        parts = [earlier for earlier in self.parts if earlier.first_step < part.first_step]
        same = parts and parts[-1].model_copy(update={"first_step": part.first_step}) == part
        if not same:
            parts.append(part)
        joined = {}
        for key, value in code.items():
            joined[key] = _joined(self.code.get(key, UNKNOWN), value)
        precision = _joined(self.precision, precision)
        update = {"precision": precision, "code": joined, "parts": parts}
        return self.model_copy(update=update)

    def measurements(self) -> dict[str, Any]:
        """Return the settings of all parts for the measurements of the artifact.

        Values that differ are joined by "+". The training was deterministic if all parts were.
        """
        measurements: dict[str, Any] = {}
        for key in ("device", "device_name", "processes", "dtype", "threads"):
            values = list(dict.fromkeys(getattr(part, key) for part in self.parts))
            measurements[key] = values[0] if len(values) == 1 else "+".join(map(str, values))
        is_complete = bool(self.parts) and self.parts[0].first_step == 1
        measurements["deterministic"] = is_complete and all(
            part.deterministic for part in self.parts
        )
        measurements["parts"] = [part.model_dump() for part in self.parts]
        return measurements


class _Measured(BaseModel):
    """The parts of a published training, in its measurements."""

    parts: list[Part] = []


def _joined(earlier: str, value: str) -> str:
    """Append `value` to the values that are joined by "+" in `earlier`, unless it is among them."""
    values = [part for part in earlier.split("+") if part]
    if value not in values:
        values.append(value)
    return "+".join(values)


def write_note(draft: Path, note: Note) -> None:
    """Write the note of a draft; a kill leaves the old one or the new one."""
    path = draft / TEMPORARY / NOTE
    # The folder of temporary files is not published.
    path.parent.mkdir(exist_ok=True)
    write_whole(path, canonical_json(sealed(note.model_dump(exclude={"sha256"}))))


def read_note(training: Path) -> Note | None:
    """Return the note of a training, published or not, or None if there is none.

    Raises:
        DamagedError: The note or the manifest does not match its hash.
    """
    path = training / TEMPORARY / NOTE
    if path.is_file():
        return read_sealed(path, Note)
    if not (training / MANIFEST).is_file():
        return None
    # Only the manifest is verified: a draft that was killed while it was published has one, too.
    manifest = read_sealed(training / MANIFEST, Manifest)
    parts: list[Part] = []
    with suppress(DamagedError):  # nothing that is computed depends on them
        parts = read_sealed(training / MEASUREMENTS, _Measured).parts
    return Note(
        depends_on=manifest.depends_on,
        parts=parts,
        precision=manifest.made_by.get("precision", ""),
        code=own_code(manifest.made_by),
        inputs=manifest.inputs,
    )


def training_code(draft: Path) -> dict[str, str]:
    """Return the versions and the precision that trained the steps of a draft, by its note."""
    # Several runs may have trained it, with other precisions or commits.
    note = read_note(draft)
    return {} if note is None else {**note.code, "precision": note.precision}


# Progress


@dataclass(frozen=True)
class Training:
    """The progress of an unfinished training."""

    step: int
    max_steps: int
    seconds_left: float  # at the speed of the last steps
    process: str | None  # the process that trains; None: it was stopped

    def __str__(self) -> str:
        """Return the last step, and the time left if it is running."""
        reached = f"step {self.step:,} of {self.max_steps:,}"
        if self.process is None:
            return reached
        return f"{reached}, about {duration(self.seconds_left)} left"


def training_progress(pipeline: Pipeline) -> Training | None:
    """Return the progress of the training, or None before its first step and when it is done."""
    fingerprint = pipeline.fingerprint("train")
    draft = pipeline.store.draft_place("train", fingerprint)
    lines = read_metrics(draft / CHECKPOINTS / METRICS, TAIL_BYTES)
    if not lines:
        return None
    # The speed of the last steps: earlier ones may have run on another machine.
    step = lines[-1]["step"]
    max_steps = pipeline.recipe.training.max_steps
    seconds_left = (max_steps - step) * fmean(line["seconds"] for line in lines)
    return Training(step, max_steps, seconds_left, pipeline.store.holder("train", fingerprint))


# Resuming


def resume_shorter(pipeline: Pipeline, draft: Path) -> None:
    """Copy the work of a shorter training to a draft, and write the note of the draft.

    Of several, the one with the most steps is taken, if it has more than the draft. A training
    that another process is writing is passed over, and so are damaged checkpoints and later ones.

    Args:
        pipeline: The pipeline of the longer training.
        draft: The draft of the longer training.

    Raises:
        UserError: The steps of the draft were trained on another build of the corpus.
    """
    from nmtkit.training.checkpoint import last_step  # imports torch

    depends_on = pipeline.depends_on("train")
    inputs = pipeline.inputs("train")
    note = read_note(draft)
    if note is None:
        # If the draft has steps nevertheless, its note was lost.
        unknown = dict.fromkeys(own_code(versions()), UNKNOWN)
        note = Note(depends_on=depends_on, precision=UNKNOWN, code=unknown, inputs=inputs)
    # `--force` of prepare may have built the same fingerprint from other bytes.
    if not _has_inputs(note, inputs):
        raise UserError(
            f"{draft} was started on another build of the prepared corpus; run "
            f"`{pipeline.commands.stage('train')} --force` to start over"
        )
    write_note(draft, note.model_copy(update={"inputs": inputs}))
    if pipeline.force:  # earlier builds are not used
        return
    shorter = list(_shorter(pipeline, depends_on, inputs))
    shorter.sort(key=lambda training: last_step(training[0] / CHECKPOINTS), reverse=True)
    for place, note in shorter:
        # A training that is running holds its lock; that and damaged checkpoints are user errors.
        with suppress(UserError), pipeline.store.lock("train", place.stem):
            if last_step(place / CHECKPOINTS) > last_step(draft / CHECKPOINTS):
                max_steps = _max_steps(note.depends_on)
                progress.log(
                    f"train: continuing {place}, the same recipe with max_steps = {max_steps:,}"
                )
                update = {"depends_on": depends_on, "inputs": inputs}
                write_note(draft, note.model_copy(update=update))
                _share(pipeline.recipe.training, place, draft / CHECKPOINTS)
                return


def lineage(depends_on: Mapping[str, Any]) -> str:
    """Return a hash of everything that a training depends on, without the number of its steps."""
    training = dict(depends_on["training"])
    del training["max_steps"]
    return compute_fingerprint("train", {**depends_on, "training": training})


def _has_inputs(note: Note, inputs: Mapping[str, str]) -> bool:
    """Return whether a training read this build of the corpus, as far as is known."""
    return not note.inputs or note.inputs == inputs  # notes of earlier versions record none


def _shorter(
    pipeline: Pipeline, depends_on: Mapping[str, Any], inputs: Mapping[str, str]
) -> Iterator[tuple[Path, Note]]:
    """Yield the trainings that differ only by a smaller max_steps, with their notes.

    Args:
        pipeline: The pipeline of the longer training.
        depends_on: Everything that the longer training depends on.
    """
    for place in pipeline.store.folders("train"):
        if place.suffix not in ("", DRAFT):
            continue
        with suppress(UserError):  # the note is damaged
            note = read_note(place)
            if note is None or not _has_inputs(note, inputs):
                continue
            if _max_steps(note.depends_on) >= _max_steps(depends_on):
                continue
            if lineage(note.depends_on) == lineage(depends_on):
                yield place, note


def _max_steps(depends_on: Mapping[str, Any]) -> int:
    """Return the number of steps of a training."""
    steps: int = depends_on["training"]["max_steps"]
    return steps


def _share(training: TrainingConfig, place: Path, directory: Path) -> None:
    """Copy metrics and share checkpoints, the oldest first: a kill leaves a valid draft.

    Args:
        training: [training] of the longer training.
        place: The shorter training, published or a draft.
        directory: The folder of checkpoints of the longer training.
    """
    from nmtkit.training.checkpoint import checkpoints, share_checkpoint  # imports torch

    if place.suffix == DRAFT:
        # They are moved up just before a draft is published.
        lines = read_metrics(place / CHECKPOINTS / METRICS) or read_metrics(place / METRICS)
    else:
        lines = read_published(place, training.max_steps)
    # The last step of the shorter training was evaluated, but the longer one may not evaluate it.
    if lines and not training.is_evaluated(lines[-1]["step"]):
        lines[-1] |= dict.fromkeys(DEV_FIELDS)
    write_metrics(directory / METRICS, lines)
    for path in checkpoints(place / CHECKPOINTS):
        if not (directory / path.name).exists():
            share_checkpoint(path, directory)
