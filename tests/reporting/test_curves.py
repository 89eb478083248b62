"""The page of a training's curves: what it shows, however long or damaged the metrics are."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nmtkit.reporting.chart import Curve
from nmtkit.reporting.curves import MAX_POINTS, Curves
from reporting.conftest import HOSTILE
from reporting.test_page import Element, assert_alone, parse

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLOTTED = ["Training loss", "Dev perplexity", "Dev sacreBLEU", "Learning rate", "Target tokens/s"]


def line(step: int, **changes: Any) -> dict[str, Any]:
    """A step of two seconds, as `metrics.jsonl` has it."""
    values = {
        "step": step,
        "loss": 8 - step / 1_000,
        "learning_rate": step * 1e-6,
        "tgt_tokens": 500,
        "seconds": 2.0,
        "dev_perplexity": None,
        "dev_sacrebleu": None,
    }
    return {**values, **changes}


def curves_of(lines: list[dict[str, Any]], path: Path = Path("x.html")) -> Curves:
    curves = Curves(path, "mine", "A recipe", 1_200)
    for each in lines:
        curves.add(each)
    return curves


def page_of(lines: list[dict[str, Any]]) -> Element:
    return parse(curves_of(lines).render(NOW))


def figures(page: Element) -> dict[str, list[str]]:
    """The key figures, each with its note."""
    (box,) = (each for each in page.all("dl") if each.attributes.get("class") == "figures")
    return {
        next(div.all("dt")).text: [value.text for value in div.all("dd")] for div in box.all("div")
    }


def places(page: Element, key: str) -> list[tuple[float, float]]:
    (svg,) = (
        each
        for each in page.all("svg")
        if each.attributes["aria-labelledby"].startswith(f"{key}-t ")
    )
    (path,) = (each for each in svg.all("path") if each.attributes["class"] == "curve")
    pairs = [place.split(" ") for place in path.attributes["d"].removeprefix("M").split("L")]
    return [(float(x), float(y)) for x, y in pairs]


def test_page_tells_how_far_training_is() -> None:
    lines = [line(step) for step in range(1, 601)]
    lines[199] |= {"dev_perplexity": 4.25, "dev_sacrebleu": 20.5}
    lines[399] |= {"dev_perplexity": 5.0, "dev_sacrebleu": 22.25}
    page = page_of(lines)
    assert [each.text for each in page.all("figcaption")] == [
        f"{title} by step" + (", logarithmic" if title == "Dev perplexity" else "")
        for title in PLOTTED
    ]
    found = figures(page)
    assert found["Step"] == ["600", "of 1,200"]
    assert found["Training loss"][0].startswith("7.40")
    assert found["Dev perplexity"] == ["5.00", "best 4.25, step 200"]
    assert found["Dev sacreBLEU"] == ["22.25", "step 400"]
    assert found["Target tokens/s"] == ["250", "about 20 min left"]
    rows = [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in page.all("tr")]
    assert rows[1:] == [["400", "5.00", "22.25"], ["200", "4.25", "20.50"]]
    assert "2026-01-02 03:04:05 UTC" in page.text


def test_curves_are_drawn_to_scale() -> None:
    lines = [
        line(step, dev_perplexity=10.0**step, dev_sacrebleu=step, loss=step) for step in (1, 2, 3)
    ]
    page = page_of(lines)
    for key in ("loss", "score", "perplexity"):  # whose logarithm rises evenly
        (x1, y1), (x2, y2), (x3, y3) = places(page, key)
        assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
        assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
        assert y1 - y2 > 20
    assert places(page, "loss")[-1][1] == pytest.approx(
        Curve.BOTTOM - (Curve.BOTTOM - Curve.TOP) / 1.05, abs=0.1
    )


def test_many_steps_are_few_points_whose_means_are_exact() -> None:
    n_steps = 5_000
    curves = curves_of([line(step) for step in range(1, n_steps + 1)])
    page = curves.render(NOW)
    assert MAX_POINTS / 2 <= len(places(parse(page), "loss")) <= MAX_POINTS
    assert len(page) < 60_000
    assert sum(point.n_steps for point in curves._points) == n_steps
    first = curves._points[0]
    assert first.last == first.n_steps
    assert first.loss / first.n_losses == pytest.approx(8 - (first.last + 1) / 2_000)


@pytest.mark.parametrize("value", [None, "x", math.nan, [], {}, True])
def test_numbers_that_are_missing_or_damaged_are_left_out(value: object) -> None:
    damaged = line(2, loss=value, learning_rate=value, dev_perplexity=value, dev_sacrebleu=value)
    page = page_of([line(1), damaged, line(3)])
    assert len(places(page, "loss")) == (3 if value is True else 2)
    assert "nan" not in curves_of([line(1), damaged]).render(NOW)


def test_page_is_alone_and_takes_no_text_for_markup() -> None:
    curves = Curves(Path("x.html"), HOSTILE, HOSTILE, 10)
    curves.add(line(1, dev_perplexity=2.0, dev_sacrebleu=3.0))
    assert_alone(parse(curves.render(NOW)), "style")


def test_page_is_written_after_evaluations_and_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    path = tmp_path / "curves.html"
    curves, steps = Curves(path, "mine", "A recipe", 100), list[int]()
    for step in range(1, 31):
        is_due = step == 7
        curves.add(line(step, dev_perplexity=2.0, dev_sacrebleu=3.0) if is_due else line(step))
        curves.write_sometimes()
        shown = figures(parse(path.read_text(encoding="utf-8")))["Step"][0]
        if not steps or steps[-1] != int(shown):
            steps.append(int(shown))
        clock[0] += 1.0
    assert steps == [1, 7, 17, 27]
    assert [each.name for each in tmp_path.iterdir()] == ["curves.html"]
