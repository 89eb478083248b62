"""The progress of an unfinished training."""

from dataclasses import dataclass
from statistics import fmean

from nmtkit.stages.pipeline import Pipeline
from nmtkit.training.metrics import CHECKPOINTS, METRICS, read_metrics
from nmtkit.utils.text import duration

TAIL_BYTES = 2**16  # end of metrics.jsonl that is read: a hundred steps or more


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
