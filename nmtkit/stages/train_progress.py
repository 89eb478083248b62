"""What a training prints and shows: a summary before the first step, then its progress.

The progress is on the terminal, on a page of curves and in TensorBoard.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtkit.stages.curves import DEV_SCORES, Curves, Sample, event_writer
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_state import Part, read_note, write_note
from nmtkit.store.code_version import is_other_code, own_code, versions
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.distributed import Group
from nmtkit.training.metrics import CHECKPOINTS, METRICS, PAGE, Metrics, read_metrics
from nmtkit.training.step import Trainer
from nmtkit.utils import progress
from nmtkit.utils.text import counted

SLOW_SHARE = 0.2  # of the speed in the first minute; below it, a warning is printed
SPEED_SECONDS = 60.0  # over which the speed is measured


# Before the first step


def training_summary(trainer: Trainer, accelerate: str) -> str:
    """Describe parameters, devices, precision and GPU optimizations in one line.

    Args:
        accelerate: The value of the option --accelerate.
    """
    group = trainer.group
    acceleration = trainer.setup.acceleration
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    devices = f"{group.size} processes on {group.device.type}"
    if group.size == 1:
        devices = str(group.device.type)
    summary = f"{n_parameters:,} parameters on {devices}, {acceleration.precision}"
    if trainer.bin_shapes:
        shapes = ", ".join(f"{shape.n_bins:,} x {shape.length:,}" for shape in trainer.bin_shapes)
        summary += f"; micro-batches of {shapes} tokens"
    else:
        summary += f"; up to {trainer.setup.max_tokens:,} tokens per side of a micro-batch"
    if group.device.type == "cuda":
        summary += f"; {_gpu_summary(acceleration, group, accelerate)}"
    return summary


def too_long_warning(trainer: Trainer) -> str | None:
    """Return a warning that counts the pairs that are too long to train on, if there are any."""
    longest = trainer.model.config.max_positions
    is_short = trainer.pairs.are_within(longest)
    n_longer = int(np.count_nonzero(~is_short))
    if n_longer == 0:
        return None
    return (
        f"skipping {n_longer:,} of {counted(len(is_short), 'pair')}: a side is longer than "
        f"[model] max_positions = {longest:,} tokens"
    )


def float16_hint(trainer: Trainer, dtype: str) -> str | None:
    """Return a line that names float16, if the GPU has no bfloat16 and `auto` chose float32.

    Args:
        dtype: The value of the option --dtype.
    """
    device = trainer.group.device
    is_float32 = trainer.setup.acceleration.dtype == torch.float32
    if dtype != "auto" or device.type != "cuda" or not is_float32:
        return None
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    return (
        "this GPU does not support bfloat16; --dtype float16 is expected to train 4 to 5 times as "
        "fast (an estimate for a T4; float16 has not run on such a GPU yet)"
    )


def _gpu_summary(acceleration: Acceleration, group: Group, accelerate: str) -> str:
    """Describe the GPUs and the optimizations that are used.

    Args:
        group: The processes that train together.
        accelerate: The value of the option --accelerate.
    """
    names = {
        Level.EAGER: "not compiled",
        Level.COMPILED: "compiled, without CUDA graphs",
        Level.CAPTURED: "compiled, with CUDA graphs",
    }
    name = torch.cuda.get_device_name(group.device)
    n_gpus = torch.cuda.device_count()
    # A process uses one GPU; the others are idle.
    if group.size < n_gpus:
        name += f", {group.size} of {n_gpus} GPUs (--processes {n_gpus} uses all)"
    optimizations = names[acceleration.level]
    if accelerate != "auto":
        optimizations += f" (--accelerate {accelerate})"
    elif acceleration.level == Level.EAGER:
        optimizations += " (no C compiler or Python headers: install gcc and python3-dev)"
    return f"{name}; {optimizations}"


# Steps


class SpeedWatch:
    """Measures the speed of each minute of training, and compares it with that of the first."""

    def __init__(self) -> None:
        """Begin with the first minute."""
        self._first: float | None = None  # target tokens/s
        self._tgt_tokens = 0
        self._seconds = 0.0

    def add(self, metrics: Metrics) -> str | None:
        """Add a step, and return a warning if a minute is over in which training was slow."""
        self._tgt_tokens += metrics.tgt_tokens
        self._seconds += metrics.seconds
        if self._seconds < SPEED_SECONDS:
            return None
        speed = self._tgt_tokens / self._seconds
        self._tgt_tokens = 0
        self._seconds = 0.0
        if self._first is None:
            self._first = speed
        if speed > SLOW_SHARE * self._first:
            return None
        return (
            f"train: the speed has fallen from {self._first:,.0f} to {speed:,.0f} target tokens/s, "
            "probably because other programs use the cores, for which all threads then wait; stop "
            "those, or stop this command and rerun it with a lower OMP_NUM_THREADS, such as 1"
        )


class Reporter:
    """Reports nothing: one process reports for all that train together."""

    def report(self, metrics: Metrics) -> None:
        """Report a step."""

    def show_samples(self, samples: list[Sample]) -> None:
        """Show translations of the development set."""

    def finish(self) -> None:
        """Show that training is finished."""


class TrainingReporter(Reporter):
    """Reports each step of a training; the first process has one."""

    def __init__(self, pipeline: Pipeline, part: Part, draft: Path, task: progress.Task) -> None:
        """Print the path of the page of curves.

        Args:
            pipeline: The pipeline, whose training is reported.
            part: The settings of this run, as the artifact records them.
            task: The progress on the terminal, in steps.
        """
        recipe = pipeline.recipe
        page = pipeline.store.place("train", pipeline.fingerprint("train")).with_suffix(PAGE)
        progress.log(f"train: curves are in {page}; reload the page for newer ones")
        # As in a report, a run is called by its recipe and its overrides, without their sections.
        changes = [override.partition(".")[2] for override in pipeline.overrides]
        self._curves = Curves(
            page,
            " ".join([recipe.name, *changes]),
            recipe.description,
            recipe.training.max_steps,
            pipeline.commands.report(),
        )
        self._part = part
        self._draft = draft
        self._task = task
        self._max_steps = recipe.training.max_steps
        self._tensorboard = pipeline.settings.tensorboard
        self._write_event: Callable[[Mapping[str, Any]], None] | None = None
        self._last_step = 0
        self._speed = SpeedWatch()
        self._descriptions: dict[str, str] = {}  # printed so far, by the name of the dev score

    def report(self, metrics: Metrics) -> None:
        """Report a step."""
        # The first step of this run shows where it resumes.
        if self._last_step == 0:
            self._begin(metrics.step)
        if metrics.dev_perplexity is not None:
            self._log_dev_scores(metrics)
        if metrics.skipped:
            progress.warn(f"train: step {metrics.step:,} was skipped: its gradient is not finite")
        if metrics.overflow:
            progress.warn(f"train: step {metrics.step:,} was skipped: float16 overflow")
        if self._part.device == "cpu" and self._part.threads > 1:
            slow = self._speed.add(metrics)
            if slow is not None:
                progress.warn_once(slow, kind="slow training")
        self._task.note(
            f"loss {metrics.loss:.3g}",
            f"{metrics.tgt_tokens / metrics.seconds:,.0f} tokens/s",
            detail=f"learning rate {metrics.learning_rate:.2e}",
        )
        self._task.advance(metrics.step - self._last_step)
        self._last_step = metrics.step
        # Writing the page takes longer than a short step, so it is not written at every step.
        self._curves.add(vars(metrics))
        self._curves.write_if_due()
        if self._write_event is not None:
            self._write_event(vars(metrics))

    def show_samples(self, samples: list[Sample]) -> None:
        """Show translations of the development set on the page of curves."""
        self._curves.samples = samples

    def finish(self) -> None:
        """Show on the page that training is finished."""
        self._curves.write("finished")

    def close(self) -> None:
        """Write the page a last time, also if all steps were done before."""
        if self._last_step == 0:  # no step was reported, so no earlier ones were added
            self._add_earlier_steps(self._max_steps + 1)
        self._curves.write("stopped")

    def _begin(self, step: int) -> None:
        """Record precision and code of the steps from `step` on, and report the earlier ones."""
        note = read_note(self._draft)
        assert note is not None  # since `resume_shorter`
        # The manifest will name all versions and precisions that trained the steps.
        part = self._part.model_copy(update={"first_step": step})
        note = note.continued(part, own_code(versions()))
        write_note(self._draft, note)
        if is_other_code(note.code):
            steps = f"steps before {step:,}" if step > 1 else "earlier steps"
            progress.warn(f"{steps} were trained by other code of nmtkit", even_if_quiet=True)
        self._add_earlier_steps(step)
        if self._tensorboard is not None:
            self._write_event = event_writer(self._tensorboard, step)

    def _add_earlier_steps(self, end: int) -> None:
        """Add the steps before `end`, which an earlier run trained, to the curves."""
        for line in read_metrics(self._draft / CHECKPOINTS / METRICS):
            if line["step"] < end:
                self._curves.add(line)

    def _log_dev_scores(self, metrics: Metrics) -> None:
        """Print the scores of the development set, the first time with their descriptions."""
        values = vars(metrics)
        parts = [f"dev perplexity {metrics.dev_perplexity:,.2f}"]
        for key, name in DEV_SCORES.items():
            if values[key] is None:
                continue
            parts.append(f"dev {name} {values[key]:.2f}")
            # The description is long and rarely changes, so it is printed once.
            description = values[f"{key}_how"]
            if self._descriptions.get(name) != description:
                self._descriptions[name] = description
                progress.log(f"train: dev {name} is of the {description}")
        parts.append(f"translated in {metrics.dev_seconds:,.1f} s")
        progress.log(f"train: step {metrics.step:,}: {', '.join(parts)}")


@contextmanager
def open_reporter(
    pipeline: Pipeline, part: Part, draft: Path, is_first: bool
) -> Iterator[Reporter]:
    """Provide the reporter of this process.

    Args:
        pipeline: The pipeline, whose training is reported.
        part: The settings of this run.
        is_first: Whether this is the first process. It reports for all.
    """
    if not is_first:
        yield Reporter()
        return
    total = pipeline.recipe.training.max_steps
    with (
        progress.task("train", unit="steps", total=total) as task,
        closing(TrainingReporter(pipeline, part, draft, task)) as reporter,
    ):
        yield reporter
