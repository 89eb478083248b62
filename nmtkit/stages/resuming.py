"""Resume from a shorter training: the same one with a smaller max_steps, finished or stopped.

The shorter training saved and evaluated its last step. The longer one drops that, unless it is due
at this step anyway, so that its artifact is the same as without the shorter one. Nothing else is
missing: the shorter training has saved all checkpoints that the longer one schedules up to there.
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
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.training.checkpoint import checkpoints, last_step, share_checkpoint
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
            f"`{pipeline.stage_command('train')} --force` to start over"
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
        inputs: The content of its inputs.
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
    """Copy metrics and share checkpoints, the oldest first, so that a kill leaves a valid draft.

    Args:
        training: [training] of the longer training.
        place: The shorter training, published or a draft.
        directory: The folder of checkpoints of the longer training.
    """
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
