"""The curves of a training as one HTML page, which curves.html.j2 describes."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nmtkit.duration import duration
from nmtkit.reporting.chart import Axis, Chart, Series
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.page import TEMPLATES, replace_page

MAX_POINTS = 400  # of a curve; twice as many steps make each point, when there are more
MAX_ROWS = 20  # of the table
MAX_SAMPLES = 5
EVERY_S = 10.0  # minimum time between two versions of the page, except after evaluations
MEASURED = ("nll", "gradient_norm", "learning_rate", "tgt_tokens", "seconds")

State = Literal["running", "stopped", "finished"]
Sample = tuple[str, str, str]  # a source, its reference and its translation


@dataclass(frozen=True)
class _Steps:
    """Consecutive steps, which make a point of each curve."""

    last: int
    sums: Mapping[str, tuple[float, int]]  # of the values that are finite, and how many are

    def __add__(self, later: "_Steps") -> "_Steps":
        sums = {
            name: (total + later.sums[name][0], n + later.sums[name][1])
            for name, (total, n) in self.sums.items()
        }
        return _Steps(later.last, sums)

    def mean(self, name: str) -> float | None:
        total, n = self.sums[name]
        return total / n if n else None


class Curves:
    """The metrics of a training, so few of them that the page stays small.

    Attributes:
        samples: Translations of dev by the model of the last evaluation.
    """

    def __init__(self, path: Path, title: str, description: str, max_steps: int) -> None:
        """Begin without any step.

        Args:
            path: The page.
            title: The name of the recipe.
            description: Its description.
            max_steps: Where the axis of steps ends.
        """
        self._path, self._title, self._description = path, title, description
        self._max_steps = max_steps
        self.samples: Sequence[Sample] = ()
        self._width = 1  # steps of a point
        self._points: list[_Steps] = []
        self._dev: list[tuple[int, float, float]] = []  # step, perplexity, score
        self._score_name = "sacreBLEU"
        self._written = -math.inf

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add a step: a line of `metrics.jsonl`, where a number that is missing is left out."""
        values = {name: _number(metrics.get(name)) for name in MEASURED}
        self._append(
            _Steps(
                metrics["step"],
                {name: (value or 0.0, int(value is not None)) for name, value in values.items()},
            )
        )
        if len(self._points) > MAX_POINTS:
            self._width *= 2
            points, self._points = self._points, []
            for point in points:
                self._append(point)
        perplexity, bleu, f1 = (
            _number(metrics.get(f"dev_{key}")) for key in ("perplexity", "sacrebleu", "bracket_f1")
        )
        score = bleu if f1 is None else f1
        if perplexity is not None and perplexity > 0 and score is not None:
            self._score_name = "sacreBLEU" if f1 is None else "bracket F1"
            self._dev.append((metrics["step"], perplexity, score))

    def _append(self, point: _Steps) -> None:
        number = (point.last - 1) // self._width
        if self._points and (self._points[-1].last - 1) // self._width == number:
            point = self._points.pop() + point
        self._points.append(point)

    def write_sometimes(self) -> None:
        """Write the page if the last step was evaluated, or the page is some seconds old."""
        evaluated = self._dev and self._dev[-1][0] == self._points[-1].last
        if evaluated or time.monotonic() - self._written >= EVERY_S:
            self.write("running")

    def write(self, state: State) -> None:
        """Write the page, whole or not at all."""
        if self._points:
            replace_page(self._path, self.render(state, datetime.now(UTC)))
            self._written = time.monotonic()

    def render(self, state: State, now: datetime) -> str:
        """Return the page as text."""
        newest = self._points[-1]
        seconds = (self._max_steps - newest.last) * (newest.mean("seconds") or 0.0)
        left = f"about {duration(seconds)} left" if state != "finished" else ""
        advice = {
            "running": ". Reload the page for newer figures; where none come, it was killed.",
            "stopped": ". The same command resumes it.",
            "finished": "." if newest.last == self._max_steps else ": dev was no longer better.",
        }[state]
        return TEMPLATES.get_template("curves.html.j2").render(
            title=self._title,
            description=self._description,
            state=state,
            advice=advice,
            written=f"{now:%Y-%m-%d %H:%M:%S} UTC",
            step=newest.last,
            max_steps=self._max_steps,
            key_figures=self._key_figures(newest, left),
            charts=self.charts(),
            grid=Grid.of(
                "Evaluations on dev",
                ("step", "loss", "perplexity", self._score_name),
                [
                    (
                        f"{step:,}",
                        f"{math.log(perplexity):.3f}",
                        f"{perplexity:.2f}",
                        f"{score:.2f}",
                    )
                    for step, perplexity, score in self._dev[: -MAX_ROWS - 1 : -1]
                ],
                n_labels=1,
            ),
            sampled=self._dev[-1][0] if self._dev else 0,
            samples=[
                list(zip(("source", "reference", "translation"), sample, strict=True))
                for sample in self.samples[:: 1 + len(self.samples) // MAX_SAMPLES]
            ],
        )

    def _key_figures(self, newest: _Steps, left: str) -> list[tuple[str, str, str]]:
        """Return the name, the value and the note of each."""
        loss, rate = newest.mean("nll"), newest.mean("learning_rate") or 0.0
        tokens, seconds = newest.sums["tgt_tokens"][0], newest.sums["seconds"][0]
        perplexity = score = "-"
        at = best = "no evaluation yet"
        if self._dev:
            step, *of_dev = self._dev[-1]
            at, (perplexity, score) = f"step {step:,}", (f"{value:.2f}" for value in of_dev)
            lowest = min(self._dev, key=lambda each: each[1])
            best = f"best {lowest[1]:.2f}, step {lowest[0]:,}"
        return [
            ("Step", f"{newest.last:,}", f"of {self._max_steps:,}"),
            ("Training loss", "-" if loss is None else f"{loss:.4g}", "nats per subword"),
            ("Dev perplexity", perplexity, best),
            (f"Dev {self._score_name}", score, at),
            ("Learning rate", f"{rate:.2e}", ""),
            ("Target tokens/s", f"{tokens / max(seconds, 1e-9):,.0f}", left),
        ]

    def charts(self) -> list[Chart]:
        """Return what was measured over the steps: loss, dev score, rate, norm and speed."""
        steps, from_0 = Axis("step", low=0, high=self._max_steps), Axis(low=0)

        def measured(name: str) -> list[tuple[int, float]]:
            means = ((each.last, each.mean(name)) for each in self._points)
            return [(step, mean) for step, mean in means if mean is not None]

        losses = [(step, math.log(perplexity)) for step, perplexity, _ in self._dev]
        scores = [(step, score) for step, _, score in self._dev]
        norms = [(step, norm) for step, norm in measured("gradient_norm") if norm > 0]
        seconds = dict(measured("seconds"))
        speeds = [
            (step, tokens / seconds[step])
            for step, tokens in measured("tgt_tokens")
            if seconds.get(step)
        ]
        loss = [Series("train", measured("nll")), Series("dev", losses, "line and dots")]
        score = [Series("dev", scores, "line and dots")]
        rate = [Series("", measured("learning_rate"))]
        charts = [
            Chart("loss", "Loss", loss, steps),
            Chart("score", f"Dev {self._score_name}", score, steps, from_0),
            Chart("rate", "Learning rate", rate, steps, from_0),
            Chart("norm", "Gradient norm", [Series("", norms)], steps, Axis(is_log=True)),
            Chart("speed", "Target tokens/s", [Series("", speeds)], steps, from_0),
        ]
        return [chart for chart in charts if any(each.points for each in chart.series)]


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None
