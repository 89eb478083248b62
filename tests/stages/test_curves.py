"""The page with the curves of a training, also with long or damaged metrics."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rendering.conftest import HOSTILE
from rendering.test_page import Element, assert_self_contained, parse

from nmtkit.rendering.chart import Point
from nmtkit.stages.curves import MAX_POINTS, Curves, Sample, State
from nmtkit.utils.text import visible

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SAMPLES = [(f"{n}. Quelle", f"{n}. reference", HOSTILE) for n in range(12)]


def line(step: int, **changes: Any) -> dict[str, Any]:
    """The metrics of a step of two seconds, as in `metrics.jsonl`."""
    values = {
        "step": step,
        "nll": 8 - step / 1_000,
        "gradient_norm": 1.5,
        "learning_rate": step * 1e-6,
        "tgt_tokens": 500,
        "seconds": 2.0,
        "dev_perplexity": None,
        "dev_sacrebleu": None,
    }
    return {**values, **changes}


def curves_of(lines: list[dict[str, Any]], samples: Sequence[Sample] = ()) -> Curves:
    curves = Curves(Path("x.html"), "mine", "A recipe", 1_200)
    curves.samples = samples
    for metrics in lines:
        curves.add(metrics)
    return curves


def points(curves: Curves, key: str, number: int = 0) -> Sequence[Point]:
    """The points of a series."""
    (chart,) = (chart for chart in curves.charts() if chart.key == key)
    return chart.series[number].points


def evaluations(page: Element) -> list[list[str]]:
    """The rows of the first table."""
    rows = next(page.all("table")).all("tr")
    return [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in rows]


def test_page_shows_progress_and_samples() -> None:
    lines = [line(step) for step in range(1, 601)]
    lines[199] |= {"dev_perplexity": 4.25, "dev_sacrebleu": 20.5}
    lines[399] |= {"dev_perplexity": 5.0, "dev_sacrebleu": 22.25}
    with_chrf = curves_of([line(1, dev_perplexity=4.0, dev_sacrebleu=2.0, dev_chrf=3.0)])
    assert evaluations(parse(with_chrf.render("running", NOW)))[0][-1] == "dev chrF2"
    page = parse(curves_of(lines, SAMPLES).render("running", NOW))
    assert [each.text for each in page.all("figcaption")] == [
        "Loss",
        "Dev perplexity per subword",
        "Dev sacreBLEU",
        "Learning rate",
        "Gradient norm",
    ]
    assert evaluations(page) == [
        ["evaluation", "step", "dev perplexity", "dev sacreBLEU"],
        ["last", "400", "5.00", "22.25"],
        ["best (lowest perplexity)", "200", "4.25", "20.50"],
    ]
    assert "best: step 200" in [text.text for text in page.all("text")]
    last = curves_of(lines[:200]).render("running", NOW)
    assert [row[1] for row in evaluations(parse(last))[1:]] == ["200"]  # last and best are one
    assert "2026-01-02 03:04:05 UTC" in page.text
    headers = {header.text for header in page.all("th")}
    assert {"0. Quelle", "9. reference", visible(HOSTILE)} <= headers
    assert_self_contained(page)


@pytest.mark.parametrize(
    ("state", "last", "sentence"),
    [
        ("running", 600, "Running, step 600 of 1,200, about 20 min left. Reload the page"),
        ("stopped", 600, "Stopped, step 600 of 1,200. The same command resumes it."),
        ("finished", 600, "Finished, step 600 of 1,200: dev no longer improved."),
        ("finished", 1_200, "Finished, step 1,200 of 1,200."),
    ],
)
def test_page_states_of_training(state: State, last: int, sentence: str) -> None:
    page = parse(curves_of([line(last)]).render(state, NOW))
    assert any(paragraph.text.startswith(sentence) for paragraph in page.all("p"))


def test_many_steps_are_averaged() -> None:
    dev = line(5_000, dev_perplexity=math.e**2, dev_sacrebleu=1.0)
    curves = curves_of([*(line(step) for step in range(1, 5_000)), dev])
    losses = points(curves, "loss")
    assert points(curves, "loss", 1) == [(5_000, 2.0)]
    assert points(curves, "score") == [(5_000, 1.0)]
    assert MAX_POINTS / 2 <= len(losses) <= MAX_POINTS
    assert losses[-1][0] == 5_000
    first = losses[0]
    assert first[1] == pytest.approx(8 - (first[0] + 1) / 2_000)
    assert len(curves.render("running", NOW)) < 120_000


def test_collapsed_model_is_shown() -> None:
    lines = [line(1, dev_perplexity=9.0, dev_sacrebleu=5.0), line(2, dev_sacrebleu=0.0)]
    curves = curves_of(lines, SAMPLES)
    assert points(curves, "score") == [(1, 5.0), (2, 0.0)]
    assert points(curves, "perplexity") == [(1, 9.0)]
    rows = evaluations(parse(curves.render("running", NOW)))
    assert rows[1] == ["last", "2", "not finite", "0.00"]
    assert rows[2][:2] == ["best (lowest perplexity)", "1"]
    only = curves_of(lines[1:]).render("running", NOW)
    assert [row[0] for row in evaluations(parse(only))[1:]] == ["last"]


@pytest.mark.parametrize(
    ("n_steps", "seconds", "names"),
    [
        (600, 0.1, ["30 s", "60 s"]),  # of 1,200 steps
        (1_200, 0.1, ["30 s", "60 s", "90 s", "120 s"]),
        (1_200, 2.0, ["10 min", "20 min", "30 min", "40 min"]),
        (1_200, 30.0, ["2 h", "4 h", "6 h", "8 h", "10 h"]),
        (750, 350.0, ["1 day", "2 days", "3 days"]),
        (1_200, 300.0, ["1 day", "2 days", "3 days", "4 days"]),
        (1_200, 0.0, []),
    ],
)
def test_time_axis(n_steps: int, seconds: float, names: list[str]) -> None:
    lines = [line(step, seconds=seconds) for step in range(1, n_steps + 1)]
    lines[0]["dev_seconds"] = 10 * seconds
    curves = curves_of(lines)
    ticks = curves.charts()[0].x.second_ticks
    assert [name for _, name in ticks] == names
    if ticks:
        step, name = ticks[0]
        units = {"s": 1, "min": 60, "h": 3_600, "day": 86_400}
        number, unit = name.split(" ")
        # The first step was followed by an evaluation that took as long as ten steps.
        assert (step + 10) * seconds == pytest.approx(int(number) * units[unit], abs=seconds)


@pytest.mark.parametrize("value", [None, "x", math.nan, [], {}, True])
def test_invalid_figures_are_skipped(value: object) -> None:
    names = ("nll", "learning_rate", "gradient_norm", "dev_perplexity", "dev_sacrebleu")
    lines = [line(1), line(2, **dict.fromkeys(names, value)), line(3)]
    curves = curves_of(lines, SAMPLES)
    assert len(points(curves, "loss")) == (3 if value is True else 2)
    assert "nan" not in curves.render("running", NOW)


def test_page_write_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "curves.html"
    curves = Curves(path, "mine", "A recipe", 100)
    steps: list[int] = []
    for step in range(1, 31):
        is_due = step == 7
        curves.add(line(step, dev_perplexity=2.0, dev_sacrebleu=3.0) if is_due else line(step))
        curves.write_if_due()
        (written,) = re.findall(r"Running, step (\d+) of", path.read_text(encoding="utf-8"))
        if not steps or steps[-1] != int(written):
            steps.append(int(written))
        clock[0] += 1.0
    assert steps == [1, 7, 17, 27]
    assert [file.name for file in tmp_path.iterdir()] == ["curves.html"]
