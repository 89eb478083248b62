"""nmtkit status."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from nmtkit.cli.options import command
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.pipeline import STAGES, Pipeline, warn_of_other_code, why_diverged
from nmtkit.training.metrics import CHECKPOINTS, METRICS, read_metrics
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import duration

TAIL_BYTES = 2**16  # of the metrics: a hundred steps or more, which tell the speed


@dataclass(frozen=True)
class State:
    stage: str
    # "fresh", "stale", "running", "partial", "diverged", "missing", "damaged" or "unknown"
    state: str
    fingerprint: str | None
    path: str | None  # where the artifact is, or will be
    why: str


@dataclass(frozen=True)
class Training:
    """How far a training is that has begun and is not finished."""

    step: int
    max_steps: int
    seconds_left: float  # at the speed of the last steps
    process: str | None  # that trains; None: it was stopped

    def __str__(self) -> str:
        left = f", about {duration(self.seconds_left)} left" if self.process else ""
        return f"step {self.step:,} of {self.max_steps:,}{left}"


@command("nmtkit status demo")
def status(pipeline: Pipeline, form: Form) -> None:
    found = states(pipeline)
    training = training_of(pipeline) if found[1].state in ("running", "partial") else None
    rows = [
        (
            each.stage,
            each.state,
            each.fingerprint or "",
            (each.path if each.state == "fresh" else each.why) or "",
        )
        for each in found
    ]
    columns = ("stage", "state", "fingerprint", "where or why")
    grid = Grid.of(f"nmtkit status {pipeline.command}", columns, rows, len(columns))
    notes: list[str] = []
    if training:
        notes.append(f"curves: {found[1].path}.html")
    following = next_command(pipeline, found)
    if following:
        running = [each.stage for each in found if each.state == "running"]
        notes.append(f"next{f', when {running[0]} has ended' if running else ''}: {following}")
    value = {"recipe": pipeline.command, "stages": {each.stage: each for each in found}}
    show(form, {**value, "training": training, "next": following}, [grid, *notes])


def next_command(pipeline: Pipeline, found: Sequence[State]) -> str | None:
    """Return what to type next; None if something must be put right before."""
    if any(each.state in ("unknown", "damaged") for each in found):
        return None
    if any(each.state != "fresh" for each in found):
        return pipeline.command_of("run")
    return shlex.join(["nmtkit", "translate", "--bundle", str(found[2].path)])


def states(pipeline: Pipeline) -> list[State]:
    return [_state(pipeline, stage) for stage in STAGES]


def _state(pipeline: Pipeline, stage: str) -> State:
    try:
        fingerprint = pipeline.fingerprint(stage)
    except UserError as error:  # a user's own file is not there
        return State(stage, "unknown", None, None, str(error))
    place = str(pipeline.store.place(stage, fingerprint))
    try:
        artifact = pipeline.store.find(stage, fingerprint)
    except UserError as error:
        return State(stage, "damaged", fingerprint, place, str(error))
    if artifact is not None:
        if (rebuilt := pipeline.stale_input(stage)) is not None:
            why = f"`{rebuilt}` was rebuilt since; the next run rebuilds this too"
            if stage == "train":
                retrain = f"{pipeline.command_of(stage)} --force"
                why = f"`{rebuilt}` was rebuilt since; `{retrain}` retrains"
            return State(stage, "stale", fingerprint, place, why)
        warn_of_other_code([artifact])
        return State(stage, "fresh", fingerprint, place, "nothing to do")
    draft = pipeline.store.draft_place(stage, fingerprint)
    training = training_of(pipeline) if stage == "train" else None
    reached = f": {training}" if training else ""
    if process := pipeline.store.holder(stage, fingerprint):
        state, why = "running", f"by {process}{reached}"
    elif diverged := why_diverged(pipeline, draft):
        state, why = "diverged", diverged
    elif draft.is_dir():
        state, why = "partial", f"begun, not finished; the next run resumes what is saved{reached}"
    else:
        state, why = "missing", "not made with these values yet"
    return State(stage, state, fingerprint, place, why)


def training_of(pipeline: Pipeline) -> Training | None:
    """Return how far the training is, if it has done a step and is not finished."""
    fingerprint = pipeline.fingerprint("train")
    draft = pipeline.store.draft_place("train", fingerprint)
    lines = read_metrics(draft / CHECKPOINTS / METRICS, TAIL_BYTES)
    if not lines:
        return None
    step, max_steps = lines[-1]["step"], pipeline.recipe.training.max_steps
    left = (max_steps - step) * fmean(line["seconds"] for line in lines)
    return Training(step, max_steps, left, pipeline.store.holder("train", fingerprint))
