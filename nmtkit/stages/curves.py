"""The curves of a training: a page, and event files for TensorBoard."""

import math
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from nmtkit.evaluation.scores import SCORE_NAMES
from nmtkit.rendering.chart import Axis, Chart, Point, Series
from nmtkit.rendering.document import Part, render_page, replace_page
from nmtkit.rendering.grid import Grid, Row
from nmtkit.utils.text import counted, duration

MAX_POINTS = 400  # of a curve; with more steps, a point is the mean of several
MAX_SAMPLES = 5
WRITE_EVERY_S = 10.0  # minimum time between two versions of the page, except after evaluations
STEP_FIGURES = ("nll", "learning_rate", "gradient_norm", "seconds")

# Scores of dev, by their keys in metrics.jsonl. The page shows the last one that is computed.
DEV_SCORES = {
    "dev_sacrebleu": SCORE_NAMES["sacrebleu"],
    "dev_chrf": SCORE_NAMES["chrf"],
    "dev_bracket_f1": SCORE_NAMES["bracket_f1"],
}
State = Literal["running", "stopped", "finished"]
SAMPLE_NAMES = ("source", "reference", "translation")
Sample = tuple[str, str, str]
ADVICE = {
    "running": ". Reload the page for newer figures; if there are none, training was killed.",
    "stopped": ". The same command resumes it.",
    "finished": ".",
}
# Distances between ticks of time, in seconds; longer trainings have a multiple of the last one.
TIME_STEPS = [1, 2, 5, 10, 15, 30]
TIME_STEPS += [60 * n for n in (1, 2, 5, 10, 15, 30)]
TIME_STEPS += [3_600 * n for n in (1, 2, 3, 6, 12)]
TIME_STEPS += [86_400 * n for n in (1, 2, 5, 10, 20, 50)]
MAX_TIME_TICKS = 5
TIME_NOTE = "Time is that of the steps and of the evaluations of dev."
LOSS_NOTE = (
    "Loss is the negative log-likelihood per subword, in nats, without label smoothing; that of "
    "dev is the logarithm of its perplexity."
)


class Evaluation(NamedTuple):
    """The figures of dev at a step. The perplexity of a model that collapsed may be NaN."""

    step: int
    perplexity: float
    score: float


class Curves:
    """The figures of a training, and the page that shows them."""

    def __init__(
        self,
        path: Path,
        title: str,
        description: str,
        max_steps: int,
        report_command: str = "nmtkit report",
    ) -> None:
        """Start without any step.

        Args:
            title: Name of the run.
            description: Description of the recipe.
            max_steps: Number of steps of the whole training, where the axis ends.
            report_command: The command that draws several trainings on one page.
        """
        self._path = path
        self._title = title
        self._description = description
        self._max_steps = max_steps
        self._report_command = report_command
        self.samples: Sequence[Sample] = ()  # of dev, translated at the last evaluation
        self._steps = array("q")
        self._values = {name: array("d") for name in STEP_FIGURES}  # NaN where one is missing
        self._elapsed = array("d")  # seconds at the end of a step
        self._evaluations: list[Evaluation] = []
        self._score_name = "sacreBLEU"
        self._last_written = -math.inf

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add a step: a line of metrics.jsonl. Missing and invalid figures are skipped."""
        self._steps.append(metrics["step"])
        for name, values in self._values.items():
            values.append(_finite_number(metrics.get(name)))
        elapsed = self._elapsed[-1] if self._elapsed else 0.0
        for name in ("seconds", "dev_seconds"):
            seconds = _finite_number(metrics.get(name))
            if seconds > 0:
                elapsed += seconds
        self._elapsed.append(elapsed)
        # Only evaluated steps have figures of dev.
        perplexity = _finite_number(metrics.get("dev_perplexity"))
        score = math.nan
        for key, name in DEV_SCORES.items():
            value = _finite_number(metrics.get(key))
            if not math.isnan(value):
                score = value
                self._score_name = name
        if not math.isnan(score):
            self._evaluations.append(Evaluation(metrics["step"], perplexity, score))

    def write_if_due(self) -> None:
        """Write the page if the last step was evaluated, or the page is some seconds old."""
        is_evaluated = bool(self._evaluations) and self._evaluations[-1].step == self._steps[-1]
        if is_evaluated or time.monotonic() - self._last_written >= WRITE_EVERY_S:
            self.write("running")

    def write(self, state: State) -> None:
        """Write the page, if there are any steps."""
        if self._steps:
            page = self.render(state, datetime.now(UTC))
            replace_page(self._path, page, follow_link=False)
            self._last_written = time.monotonic()

    def render(self, state: State, now: datetime) -> str:
        """Return the page as HTML.

        Args:
            now: Time of writing, UTC.
        """
        step = self._steps[-1]
        note = f"`{self._report_command}` compares the curves of several trainings."
        parts = [Part("curves", "Curves", text=note, charts=self.charts())]
        samples = self._samples_grid()
        if samples is not None:
            parts.append(Part("samples", "Samples of dev", table=samples))
        document = Part(
            "training",
            f"{self._title}: training, step {step:,}",
            f"{self._description}\n{self._progress(state)}",
            table=self._evaluations_grid(),
            notes=[
                f"Written on {now:%Y-%m-%d %H:%M:%S} UTC by nmtkit train. {LOSS_NOTE} {TIME_NOTE}"
            ],
            parts=parts,
        )
        return render_page(document)

    def _progress(self, state: State) -> str:
        """Return a sentence on the progress of the training."""
        step = self._steps[-1]
        text = f"{state.capitalize()}, step {step:,} of {self._max_steps:,}"
        step_seconds = self._means("seconds")
        # The last interval estimates the rest: the first steps compile and fill caches.
        if state == "running" and step_seconds:
            _, seconds_per_step = step_seconds[-1]
            text += f", about {duration((self._max_steps - step) * seconds_per_step)} left"
        if state == "finished" and step < self._max_steps:
            return f"{text}: dev no longer improved."
        return text + ADVICE[state]

    def _samples_grid(self) -> Grid | None:
        """Return some translations of dev by the last model that was evaluated."""
        # An evaluation without a finite score has samples, but no entry.
        if not self.samples or not self._evaluations:
            return None
        # Samples from all parts of dev, the same ones at every evaluation.
        stride = 1 + len(self.samples) // MAX_SAMPLES
        groups = []
        for number, sample in enumerate(self.samples[::stride], start=1):
            group = []
            for name, text in zip(SAMPLE_NAMES, sample, strict=True):
                group.append((str(number), name, text))
            groups.append(group)
        title = f"Greedy translations by the model of step {self._evaluations[-1].step:,}"
        return Grid(title, ("", "", ""), 3, groups, has_texts=True)

    def _evaluations_grid(self) -> Grid | None:
        """Return the last evaluation, and the one with the lowest perplexity."""
        if not self._evaluations:
            return None
        # If the last one is the best, two equal rows would look like a mistake.
        last = self._evaluations[-1]
        best = self._best()
        evaluations = {"last": last}
        if last == best:
            evaluations = {"last, and best (lowest perplexity)": best}
        elif best is not None:
            evaluations["best (lowest perplexity)"] = best
        rows: list[Row] = []
        for name, (step, perplexity, score) in evaluations.items():
            perplexity_cell = "not finite" if math.isnan(perplexity) else f"{perplexity:,.2f}"
            rows.append((name, f"{step:,}", perplexity_cell, f"{score:.2f}"))
        columns = ("evaluation", "step", "dev perplexity", f"dev {self._score_name}")
        return Grid.of("", columns, rows, 1)

    def _best(self) -> Evaluation | None:
        """Return the evaluation with the lowest perplexity; None if none is finite."""
        finite = [line for line in self._evaluations if not math.isnan(line.perplexity)]
        return min(finite, key=lambda evaluation: evaluation.perplexity, default=None)

    def charts(self) -> list[Chart]:
        """Return the curves that have points."""
        dev_losses = []
        perplexities = []
        scores = []
        for evaluation in self._evaluations:
            if evaluation.perplexity > 0:
                # In the unit of the training loss: both share an axis.
                dev_losses.append((evaluation.step, math.log(evaluation.perplexity)))
                perplexities.append((evaluation.step, evaluation.perplexity))
            scores.append((evaluation.step, evaluation.score))
        best = []
        best_evaluation = self._best()
        if best_evaluation is not None:
            best_step = best_evaluation.step
            best.append((best_step, f"best: step {best_step:,}"))
        norms = []
        for step, norm in self._means("gradient_norm"):
            if norm > 0:  # the axis is logarithmic
                norms.append((step, norm))
        # The axis ends where training will end: the curve shows its progress.
        steps = Axis(
            "step",
            low=0,
            high=self._max_steps,
            second_name="time",
            second_ticks=self._time_ticks(),
            point_name=self._point_name,
        )
        from_zero = Axis(low=0)
        charts = [
            Chart(
                "loss",
                "Loss",
                [
                    Series("train", self._means("nll"), is_noisy=True),
                    Series("dev", dev_losses, "line and dots"),
                ],
                steps,
                Axis("nats per subword"),
            ),
            Chart(
                "perplexity",
                "Dev perplexity per subword",
                [Series("dev", perplexities, "line and dots")],
                steps,
                Axis(is_log=True),
                best,
            ),
            Chart(
                "score",
                f"Dev {self._score_name}",
                [Series("dev", scores, "line and dots")],
                steps,
                from_zero,
                best,
            ),
            Chart(
                "rate",
                "Learning rate",
                [Series("", self._means("learning_rate"))],
                steps,
                from_zero,
            ),
            Chart(
                "norm",
                "Gradient norm",
                [Series("", norms, is_noisy=True)],
                steps,
                Axis(is_log=True),
            ),
        ]
        shown = []
        for chart in charts:
            if any(series.points for series in chart.series):
                shown.append(chart)
        return shown

    def _time_ticks(self) -> list[tuple[float, str]]:
        """Return round times since the beginning, at the steps that were reached then."""
        if not self._elapsed or self._elapsed[-1] <= 0:
            return []
        total = self._elapsed[-1]
        # The curve may be the beginning of the axis: there is less space for ticks.
        n_ticks = max(1, round(MAX_TIME_TICKS * self._steps[-1] / self._max_steps))
        longest = TIME_STEPS[-1]
        distances = [*TIME_STEPS, longest * (1 + int(total / n_ticks / longest))]
        distance = next(distance for distance in distances if total // distance <= n_ticks)
        ticks = []
        for n in range(1, int(total / distance) + 1):
            index = bisect_left(self._elapsed, n * distance)
            ticks.append((float(self._steps[index]), _time_name(n * distance, distance)))
        return ticks

    def _point_name(self, step: float) -> str:
        """Return a step and its time, for the pointer."""
        index = bisect_left(self._steps, step)
        return f"{step:,.0f}, {duration(self._elapsed[index])}"

    def _means(self, name: str) -> list[Point]:
        """Return a figure as at most MAX_POINTS points: the last steps and means of intervals."""
        steps = self._steps
        values = np.array(self._values[name])
        width = 1 + (len(steps) - 1) // MAX_POINTS  # steps per interval
        points: list[Point] = []
        for begin in range(0, len(steps), width):
            interval = values[begin : begin + width]
            known = interval[np.isfinite(interval)]
            if known.size:
                last_step = steps[begin + len(interval) - 1]
                points.append((last_step, float(known.mean())))
        return points


def _time_name(seconds: int, distance: int) -> str:
    """Return a multiple of a distance between ticks, in the unit of the distance."""
    if distance >= 86_400:
        return counted(seconds // 86_400, "day")
    if distance >= 3_600:
        return f"{seconds // 3_600} h"
    if distance >= 60:
        return f"{seconds // 60} min"
    return f"{seconds} s"


def _finite_number(value: object) -> float:
    """Return a finite number, or NaN for any other value."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return math.nan


def event_writer(folder: Path, first_step: int) -> Callable[[Mapping[str, object]], None]:
    """Return a function that adds the metrics of a step to TensorBoard's event files.

    Args:
        folder: The folder that `tensorboard --logdir` shows.
        first_step: The first step to be written. Events of this and later steps, which a killed
            run wrote, are hidden.
    """
    from torch.utils.tensorboard import SummaryWriter  # an optional extra

    writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(metrics: Mapping[str, object]) -> None:
        for name, value in metrics.items():
            if name != "step" and isinstance(value, int | float):
                writer.add_scalar(name, float(value), metrics["step"])
        # After a kill, steps before the last checkpoint are not written a second time.
        writer.flush()

    return write
