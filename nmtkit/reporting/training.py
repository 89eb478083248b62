"""What is shown of a training: a page of its curves, its speed, TensorBoard's event files."""

import math
import time
from array import array
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nmtkit.duration import duration
from nmtkit.model.cost import update_flops
from nmtkit.recipe import ModelConfig
from nmtkit.reporting.chart import Axis, Chart, Point, Series
from nmtkit.reporting.document import Part, page_of
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.page import replace_page
from nmtkit.reporting.scores import SCORE_NAMES

MAX_POINTS = 400  # of a curve; each is the mean of several steps when there are more
MAX_SAMPLES = 5
EVERY_S = 10.0  # minimum time between two versions of the page, except after evaluations
DECAY = 0.95  # of speed: weight of a step relative to the next; an average of about 20 steps
MEASURED = ("nll", "learning_rate", "gradient_norm", "tgt_tokens", "seconds")

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
        whole = Part(
            "training",
            f"{self._title}: training, step {step:,}",
            f"{self._description}\n{reached}{advice}",
            table=Grid.of("", ("", "", ""), self._key_figures(state), 3),
            notes=[f"Written on {now:%Y-%m-%d %H:%M:%S} UTC by nmtkit train. {loss}"],
            parts=parts,
        )
        return page_of(whole)

    def _key_figures(self, state: State) -> list[tuple[str, str, str]]:
        step = self._steps[-1]
        loss, rate, _, tokens, seconds = (
            next((mean for _, mean in reversed(self._means(name))), 0.0) for name in MEASURED
        )
        left = f"about {duration((self._max_steps - step) * seconds)} left"
        perplexity = score = "-"
        at = best = "no evaluation yet"
        if self._dev:
            evaluated, *of_dev = self._dev[-1]
            at, (perplexity, score) = f"step {evaluated:,}", (f"{value:.2f}" for value in of_dev)
            lowest = min(self._dev, key=lambda each: each[1])
            best = f"best {lowest[1]:.2f}, step {lowest[0]:,}"
        speed = f"{tokens / max(seconds, 1e-9):,.0f}"
        return [
            ("Step", f"{step:,}", f"of {self._max_steps:,}"),
            ("Training loss", f"{loss:.4g}", "nats per subword"),
            ("Dev perplexity", perplexity, best),
            (f"Dev {self._score_name}", score, at),
            ("Learning rate", f"{rate:.2e}", ""),
            ("Target tokens/s", speed, left if state != "finished" else ""),
        ]

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
        values, n = np.array(self._values[name]), len(self._steps)
        width = 1 + (n - 1) // MAX_POINTS
        starts, is_known = np.arange(0, n, width), np.isfinite(values)
        sums = np.add.reduceat(np.where(is_known, values, 0.0), starts)
        counts = np.add.reduceat(is_known.astype(np.int64), starts)
        steps = np.array(self._steps)[np.minimum(starts + width, n) - 1]
        parts = zip(steps.tolist(), sums.tolist(), counts.tolist(), strict=True)
        return [(step, total / count) for step, total, count in parts if count]


def _number(value: object) -> float:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return math.nan


class Speed:
    def __init__(self, config: ModelConfig, n_rows: int, *, length: int, peak_flops: float) -> None:
        """Start; sentences have `length` tokens, and `peak_flops` is FLOP/s, 0 if not known."""
        self._config, self._n_rows, self._length = config, n_rows, length
        self._peak_flops = peak_flops
        self._tokens = self._flops = self._seconds = 0.0

    def add(self, src_tokens: int, tgt_tokens: int, seconds: float) -> None:
        flops = update_flops(self._config, self._n_rows, src_tokens, tgt_tokens, self._length)
        self._tokens = DECAY * self._tokens + tgt_tokens
        self._flops = DECAY * self._flops + flops
        self._seconds = DECAY * self._seconds + seconds

    def parts(self) -> list[str]:
        """Return target tokens/s and, if the peak is known, MFU (of real tokens)."""
        parts = [f"{self._tokens / self._seconds:,.0f} target tokens/s"]
        if self._peak_flops:
            parts.append(f"{self._flops / self._seconds / self._peak_flops:.1%} MFU")
        return parts


class EventWriter:
    """Writes event files that `tensorboard --logdir FOLDER` shows."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Write to `folder`; what a killed run wrote there of `first_step` and later is hidden."""
        from torch.utils.tensorboard import SummaryWriter  # an optional extra

        self._writer = SummaryWriter(str(folder), purge_step=first_step)

    def write(self, metrics: Mapping[str, object]) -> None:
        """Add the numbers of a step, under their names, at `metrics["step"]`."""
        for name, value in metrics.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, float(value), metrics["step"])
        self._writer.flush()  # a step that a checkpoint counts is not written again after a kill

    def close(self) -> None:
        self._writer.close()
