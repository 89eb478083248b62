"""The curves of a training as one HTML page, which curves.html.j2 describes."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nmtkit.reporting.chart import Curve
from nmtkit.reporting.inspection import Grid
from nmtkit.reporting.page import TEMPLATES, replace_page

MAX_POINTS = 400  # of a curve; twice as many steps make each point, when there are more
MAX_ROWS = 20  # of the table
EVERY_S = 10.0  # minimum time between two versions of the page, except after evaluations


@dataclass
class _Steps:
    """Sums over consecutive steps, which make a point of each curve."""

    last: int
    n_steps: int = 0
    loss: float = 0.0
    n_losses: int = 0  # that are finite
    learning_rate: float = 0.0
    tgt_tokens: float = 0.0
    seconds: float = 0.0

    def add(self, other: "_Steps") -> None:
        for name, value in vars(other).items():
            setattr(self, name, value if name == "last" else getattr(self, name) + value)


class Curves:
    """The metrics of a training, so few of them that the page stays small."""

    def __init__(self, path: Path, title: str, description: str, max_steps: int) -> None:
        """Begin without any step.

        Args:
            path: the page.
            title: the name of the recipe.
            description: its description.
            max_steps: where the axis of steps ends.
        """
        self._path, self._title, self._description = path, title, description
        self._max_steps = max_steps
        self._width = 1  # steps of a point
        self._points: list[_Steps] = []
        self._dev: list[tuple[int, float, float]] = []  # step, perplexity, score
        self._score_name = "sacreBLEU"
        self._written = -math.inf

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Add a step: a line of `metrics.jsonl`, where a number that is missing is left out."""
        step = metrics["step"]
        loss = _number(metrics.get("loss"))
        new = _Steps(
            step,
            1,
            loss or 0.0,
            int(loss is not None),
            _number(metrics.get("learning_rate")) or 0.0,
            metrics["tgt_tokens"],
            metrics["seconds"],
        )
        if self._points and (self._points[-1].last - 1) // self._width == (step - 1) // self._width:
            self._points[-1].add(new)
        else:
            self._points.append(new)
        if len(self._points) > MAX_POINTS:
            self._halve()
        perplexity, bleu, f1 = (
            _number(metrics.get(f"dev_{key}")) for key in ("perplexity", "sacrebleu", "bracket_f1")
        )
        score = bleu if f1 is None else f1
        if perplexity is not None and score is not None:
            self._score_name = "sacreBLEU" if f1 is None else "bracket F1"
            self._dev.append((step, perplexity, score))

    def _halve(self) -> None:
        self._width *= 2
        points, self._points = self._points, []
        for point in points:
            number = (point.last - 1) // self._width
            if self._points and (self._points[-1].last - 1) // self._width == number:
                self._points[-1].add(point)
            else:
                self._points.append(point)

    def write_sometimes(self) -> None:
        """Write the page if the last step was evaluated, or the page is some seconds old."""
        evaluated = self._dev and self._dev[-1][0] == self._points[-1].last
        if evaluated or time.monotonic() - self._written >= EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the page, whole or not at all."""
        if self._points:
            replace_page(self._path, self.render(datetime.now(UTC)))
            self._written = time.monotonic()

    def render(self, now: datetime) -> str:
        """Return the page as text."""
        newest = self._points[-1]
        speed = newest.tgt_tokens / max(newest.seconds, 1e-9)
        left = (self._max_steps - newest.last) * newest.seconds / newest.n_steps
        best = min(self._dev, key=lambda each: each[1], default=None)
        return TEMPLATES.get_template("curves.html.j2").render(
            title=self._title,
            description=self._description,
            written=f"{now:%Y-%m-%d %H:%M:%S} UTC",
            step=newest.last,
            max_steps=self._max_steps,
            loss=newest.loss / newest.n_losses if newest.n_losses else None,
            dev=self._dev[-1] if self._dev else None,
            best=best,
            score_name=self._score_name,
            learning_rate=newest.learning_rate / newest.n_steps,
            speed=speed,
            minutes_left=left / 60,
            curves=self.curves(),
            grid=Grid(
                "Evaluations on dev",
                ("step", "perplexity", self._score_name),
                1,
                [
                    [(f"{step:,}", f"{perplexity:.2f}", f"{score:.2f}")]
                    for step, perplexity, score in self._dev[: -MAX_ROWS - 1 : -1]
                ],
            ),
        )

    def curves(self) -> list[Curve]:
        """Return each curve of the steps so far."""
        points, dev, end = self._points, self._dev, self._max_steps
        losses = [(p.last, p.loss / p.n_losses) for p in points if p.n_losses]
        rates = [(p.last, p.learning_rate / p.n_steps) for p in points]
        speeds = [(p.last, p.tgt_tokens / p.seconds) for p in points if p.seconds]
        perplexities = [(step, perplexity) for step, perplexity, _ in dev]
        scores = [(step, score) for step, _, score in dev]
        return [
            Curve("loss", "Training loss", losses, end),
            Curve("perplexity", "Dev perplexity", perplexities, end, is_log=True, has_dots=True),
            Curve("score", f"Dev {self._score_name}", scores, end, has_dots=True),
            Curve("rate", "Learning rate", rates, end),
            Curve("speed", "Target tokens/s", speeds, end),
        ]


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None
