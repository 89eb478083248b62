"""The state of each stage of a recipe, and the progress of an unfinished training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from nmtkit.stages.dependencies import STAGES
from nmtkit.stages.pipeline import Pipeline, warn_of_other_code
from nmtkit.store.artifacts import Artifact
from nmtkit.training.metrics import CHECKPOINTS, DIVERGED, METRICS, REMEDY, read_metrics
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import duration

TAIL_BYTES = 2**16  # end of metrics.jsonl that is read: a hundred steps or more


@dataclass(frozen=True)
class State:
    """The state of one stage."""

    stage: str
    # "fresh", "stale", "running", "partial", "diverged", "missing", "damaged" or "unknown"
    state: str
    fingerprint: str | None
    path: str | None  # of the artifact, which need not exist
    why: str


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


def next_command(pipeline: Pipeline, stage_states: Sequence[State]) -> str | None:
    """Return the command to type next, or None if an error must be fixed first.

    Args:
        pipeline: The stages of the recipe.
        stage_states: Their states.
    """
    present = {state.state for state in stage_states}
    if present & {"unknown", "damaged"}:
        return None
    if present != {"fresh"}:
        return pipeline.stage_command("run")
    return pipeline.translate_command()


def states(pipeline: Pipeline) -> list[State]:
    """Return the states of all stages, in their order."""
    return [_stage_state(pipeline, stage) for stage in STAGES]


def _stage_state(pipeline: Pipeline, stage: str) -> State:
    """Return the state of a stage."""
    try:
        fingerprint = pipeline.fingerprint(stage)
    except UserError as error:  # a file of the recipe is missing
        return State(stage, "unknown", None, None, str(error))
    path = str(pipeline.store.place(stage, fingerprint))
    try:
        artifact = pipeline.store.find(stage, fingerprint)
    except UserError as error:
        return State(stage, "damaged", fingerprint, path, str(error))

    if artifact is not None:
        return _published_state(pipeline, artifact)
    return _draft_state(pipeline, stage)


def _published_state(pipeline: Pipeline, artifact: Artifact) -> State:
    """Return the state of a stage that has published an artifact."""
    stage = artifact.manifest.kind
    fingerprint = artifact.path.name
    path = str(artifact.path)
    rebuilt = pipeline.stale_input(stage)
    # `--force` rebuilds an input under the same fingerprint.
    if rebuilt is None:
        warn_of_other_code([artifact])
        return State(stage, "fresh", fingerprint, path, "nothing to do")
    why = f"`{rebuilt}` was rebuilt since; the next run rebuilds this too"
    if stage == "train":  # too expensive to delete without a request
        retrain = f"{pipeline.stage_command(stage)} --force"
        why = f"`{rebuilt}` was rebuilt since; `{retrain}` retrains"
    return State(stage, "stale", fingerprint, path, why)


def _draft_state(pipeline: Pipeline, stage: str) -> State:
    """Return the state of a stage that has published nothing."""
    fingerprint = pipeline.fingerprint(stage)
    path = str(pipeline.store.place(stage, fingerprint))
    draft = pipeline.store.draft_place(stage, fingerprint)
    training = training_progress(pipeline) if stage == "train" else None
    reached = f": {training}" if training else ""
    # While a training that diverged is retried, the note of the divergence may still be there.
    process = pipeline.store.holder(stage, fingerprint)
    if process is not None:
        return State(stage, "running", fingerprint, path, f"by {process}{reached}")
    diverged = _why_diverged(pipeline, draft)
    if diverged is not None:
        return State(stage, "diverged", fingerprint, path, diverged)
    if draft.is_dir():
        why = f"incomplete; the next run resumes it{reached}"
        return State(stage, "partial", fingerprint, path, why)
    return State(stage, "missing", fingerprint, path, "not built with these values yet")


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


def _why_diverged(pipeline: Pipeline, draft: Path) -> str | None:
    """Return the reason and the remedy if the training in `draft` diverged, and None otherwise."""
    note = draft / CHECKPOINTS / DIVERGED
    if not note.is_file():
        return None
    reason = note.read_text(encoding="utf-8", errors="replace")  # it may be damaged
    return f"{reason}; `{pipeline.stage_command('train')}` retries; {REMEDY}"
