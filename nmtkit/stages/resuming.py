"""Continue a shorter training: the same one with a smaller max_steps, finished or stopped.

What the shorter one saved and evaluated because it ended is dropped, unless the longer one does it
at this step too, so that its artifact is the same as without the shorter one. It lacks nothing: all
checkpoints that the longer one schedules up to there, the shorter one schedules too.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nmtkit.config.recipe import TrainingConfig
from nmtkit.stages.note import UNKNOWN, Note, read_note, write_note
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.code_version import own_code, versions
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import fingerprint_of
from nmtkit.training.checkpoint import checkpoints, last_step, share_checkpoint
from nmtkit.training.metrics import (
    CHECKPOINTS,
    METRICS,
    OF_DEV,
    read_metrics,
    read_published,
    write_metrics,
)
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


def continue_shorter(pipeline: Pipeline, draft: Path) -> None:
    """Share the work of the longest of the shorter trainings with `draft`, if it has more steps."""
    wanted = pipeline.depends_on("train")
    inputs = pipeline.inputs("train")
    note = read_note(draft)
    if note is None:
        # If the draft has steps nevertheless, its note was lost.
        unknown = dict.fromkeys(own_code(versions()), UNKNOWN)
        note = Note(depends_on=wanted, precision=UNKNOWN, code=unknown, inputs=inputs)
    if not _are_same_inputs(note, inputs):
        raise UserError(
            f"{draft} was begun on another build of the prepared corpus; run "
            f"`{pipeline.command_of('train')} --force` to start over"
        )
    write_note(draft, note.model_copy(update={"inputs": inputs}))
    if pipeline.force:  # nothing of an earlier build is used
        return
    shorter = dict(_shorter(pipeline, wanted))
    for place in sorted(shorter, key=lambda path: last_step(path / CHECKPOINTS), reverse=True):
        note = shorter[place]
        # It is passed over if it is running, and its checkpoints from the first damaged one on.
        with suppress(UserError), pipeline.store.lock("train", place.stem):
            if last_step(place / CHECKPOINTS) > last_step(draft / CHECKPOINTS):
                max_steps: int = note.depends_on["training"]["max_steps"]
                progress.log(f"train: continues {place}, the same with max_steps = {max_steps:,}")
                write_note(draft, note.model_copy(update={"depends_on": wanted, "inputs": inputs}))
                _share(pipeline.recipe.training, place, draft / CHECKPOINTS)
                return


def _are_same_inputs(note: Note, inputs: Mapping[str, str]) -> bool:
    """Return whether a training read this build of the corpus; notes of earlier versions may."""
    return not note.inputs or note.inputs == inputs


def lineage(depends_on: Mapping[str, Any]) -> str:
    """Return a hash of everything that a training depends on except the number of its steps."""
    training = {**depends_on["training"]}
    del training["max_steps"]
    return fingerprint_of("train", {**depends_on, "training": training})


def _shorter(pipeline: Pipeline, wanted: Mapping[str, Any]) -> Iterator[tuple[Path, Note]]:
    """Yield the trainings that differ in nothing but a smaller max_steps, and their notes."""
    for place in pipeline.store.folders("train"):
        with suppress(UserError):
            if place.suffix in ("", DRAFT) and (note := read_note(place)):
                is_shorter = _max_steps(note.depends_on) < _max_steps(wanted)
                is_alike = lineage(note.depends_on) == lineage(wanted)
                if is_shorter and is_alike and _are_same_inputs(note, pipeline.inputs("train")):
                    yield place, note


def _max_steps(depends_on: Mapping[str, Any]) -> int:
    steps: int = depends_on["training"]["max_steps"]
    return steps


def _share(training: TrainingConfig, place: Path, directory: Path) -> None:
    """Share metrics and checkpoints, the oldest first: a kill leaves what a stop would leave."""
    if place.suffix == DRAFT:
        lines = read_metrics(place / CHECKPOINTS / METRICS) or read_metrics(place / METRICS)
    else:
        lines = read_published(place, training.max_steps, progress.log)
    if lines and not training.is_evaluated(lines[-1]["step"]):
        lines[-1] |= dict.fromkeys(OF_DEV)
    write_metrics(directory / METRICS, lines)
    for path in checkpoints(place / CHECKPOINTS):
        if not (directory / path.name).exists():
            share_checkpoint(path, directory)
