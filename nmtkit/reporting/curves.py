"""What is shown of a training: a page of its curves, and TensorBoard's event files."""

import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nmtkit.reporting.chart import Axis, Chart, Point, Series
from nmtkit.reporting.document import Part, page_of, replace_page
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.scores import SCORE_NAMES
from nmtkit.utils.text import duration

MAX_POINTS = 400  # of a curve; each is the mean of several steps when there are more
MAX_SAMPLES = 5
EVERY_S = 10.0  # minimum time between two versions of the page, except after evaluations
MEASURED = ("nll", "learning_rate", "gradient_norm", "seconds")

# Of a translation of dev; the last one that an evaluation has is drawn.
DEV_SCORES = {f"dev_{key}": SCORE_NAMES[key] for key in ("sacrebleu", "chrf", "bracket_f1")}
State = Literal["running", "stopped", "finished"]
OF_SAMPLE = ("source", "reference", "translation")
Sample = tuple[str, str, str]  # of these
ADVICE = {
    "running": ". Reload the page for newer figures; where none come, it was killed.",
    "stopped": ". The same command resumes it.",
    "finished": ".",
}


class Curves:
    def __init__(self, path: Path, title: str, description: str, max_steps: int) -> None:
        """Begin without any step; the axis of steps ends at `max_steps`."""
        self._path, self._title, self._description = path, title, description
        self._max_steps = max_steps
        self.samples: Sequence[Sample] = ()  # of dev, translated at the last evaluation
        self._steps = array("q")
        self._values = {name: array("d") for name in MEASURED}  # NaN where there is none
        self._dev: list[tuple[int, float, float]] = []  # step, perplexity, score
        self._score_name = "sacreBLEU"
        self._written = -math.inf

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add a step: a line of `metrics.jsonl`, where a number that is missing is left out."""
        self._steps.append(metrics["step"])
        for name, values in self._values.items():
            values.append(_number(metrics.get(name)))
        perplexity = _number(metrics.get("dev_perplexity"))
        scores = [(name, _number(metrics.get(key))) for key, name in DEV_SCORES.items()]
        scores = [each for each in scores if not math.isnan(each[1])]
        if perplexity > 0 and scores:
            self._score_name, score = scores[-1]
            self._dev.append((metrics["step"], perplexity, score))

    def write_sometimes(self) -> None:
        """Write the page if the last step was evaluated, or the page is some seconds old."""
        evaluated = self._dev and self._dev[-1][0] == self._steps[-1]
        if evaluated or time.monotonic() - self._written >= EVERY_S:
            self.write("running")

    def write(self, state: State) -> None:
        if self._steps:
            replace_page(self._path, self.render(state, datetime.now(UTC)))
            self._written = time.monotonic()

    def render(self, state: State, now: datetime) -> str:
        step = self._steps[-1]
        is_early = state == "finished" and step < self._max_steps
        advice = ": dev was no longer better." if is_early else ADVICE[state]
        parts = [Part("curves", "Curves", charts=self.charts())]
        samples = self.samples[:: 1 + len(self.samples) // MAX_SAMPLES]
        if samples and self._dev:  # which has no evaluation without a finite perplexity
            title = f"greedy translations by the model of step {self._dev[-1][0]:,}"
            groups = [
                [(str(n), *row) for row in zip(OF_SAMPLE, sample, strict=True)]
                for n, sample in enumerate(samples, 1)
            ]
            table = Grid(title, ("", "", ""), 3, groups)
            parts.append(Part("samples", "Samples of dev", table=table))
        loss = (
            "Loss is the negative log-likelihood per subword, in nats, without label smoothing; "
            "that of dev is the logarithm of its perplexity."
        )
        reached = f"{state.capitalize()}, step {step:,} of {self._max_steps:,}"
        seconds = [(self._max_steps - step) * mean for _, mean in self._means("seconds")[-1:]]
        if state == "running" and seconds:
            reached += f", about {duration(*seconds)} left"
        whole = Part(
            "training",
            f"{self._title}: training, step {step:,}",
            f"{self._description}\n{reached}{advice}",
            table=self._evaluations(),
            notes=[f"Written on {now:%Y-%m-%d %H:%M:%S} UTC by nmtkit train. {loss}"],
            parts=parts,
        )
        return page_of(whole)

    def _evaluations(self) -> Grid | None:
        """Return the last evaluation, and that with the lowest perplexity."""
        by_perplexity = sorted(self._dev, key=lambda each: each[1])
        rows = [
            (name, f"{step:,}", f"{perplexity:.2f}", f"{score:.2f}")
            for name, found in (("last", self._dev[-1:]), ("best", by_perplexity))
            for step, perplexity, score in found[:1]
        ]
        columns = ("evaluation", "step", "dev perplexity", f"dev {self._score_name}")
        return Grid.of("", columns, rows, 1) if rows else None

    def charts(self) -> list[Chart]:
        steps, from_0 = Axis("step", low=0, high=self._max_steps), Axis(low=0)
        losses = [(step, math.log(perplexity)) for step, perplexity, _ in self._dev]
        scores = [(step, score) for step, _, score in self._dev]
        norms = [point for point in self._means("gradient_norm") if point[1] > 0]
        loss = [Series("train", self._means("nll")), Series("dev", losses, "line and dots")]
        score = [Series("dev", scores, "line and dots")]
        rate = [Series("", self._means("learning_rate"))]
        charts = [
            Chart("loss", "Loss", loss, steps),
            Chart("score", f"Dev {self._score_name}", score, steps, from_0),
            Chart("rate", "Learning rate", rate, steps, from_0),
            Chart("norm", "Gradient norm", [Series("", norms)], steps, Axis(is_log=True)),
        ]
        return [chart for chart in charts if any(each.points for each in chart.series)]

    def _means(self, name: str) -> list[Point]:
        """Return the last step and the mean value of each of at most `MAX_POINTS` parts."""
        steps, values = self._steps, np.array(self._values[name])
        width, found = 1 + (len(steps) - 1) // MAX_POINTS, list[Point]()
        for begin in range(0, len(steps), width):
            part = values[begin : begin + width]
            if (known := part[np.isfinite(part)]).size:
                found.append((steps[begin + len(part) - 1], float(known.mean())))
        return found


def _number(value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return math.nan


def event_writer(folder: Path, first_step: int) -> Callable[[Mapping[str, object]], None]:
    """Return what adds the numbers of a step to the files that `tensorboard --logdir` shows.

    What a killed run wrote to `folder` of `first_step` and later is hidden.
    """
    from torch.utils.tensorboard import SummaryWriter  # an optional extra

    writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(metrics: Mapping[str, object]) -> None:
        for name, value in metrics.items():
            if name != "step" and isinstance(value, int | float):
                writer.add_scalar(name, float(value), metrics["step"])
        writer.flush()  # a step that a checkpoint counts is not written again after a kill

    return write
