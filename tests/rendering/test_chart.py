"""Charts: drawn to scale, with all labels, on a page and as SVG files."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.rendering.chart import Axis, Chart, Series, short, short_labels
from nmtkit.utils.text import visible
from rendering.conftest import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def drawing(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.svg())


def corners(chart: Chart, number: int = 0) -> list[list[float]]:
    """The points of the line of a series."""
    (line,) = drawing(chart).findall("g")[number].findall("path")
    points = line.attrib["d"][1:].split("L")
    return [list(map(float, point.split(" "))) for point in points]


def names(chart: Chart) -> list[str | None]:
    return [text.text for text in drawing(chart).iter("text")]


@pytest.mark.parametrize("x_log", [False, True])
@pytest.mark.parametrize("y_log", [False, True])
def test_lines_to_scale(x_log: bool, y_log: bool) -> None:
    powers = [1.0, 10.0, 100.0]
    even = [1.0, 2.0, 3.0]
    points = list(zip(powers if x_log else even, powers if y_log else even, strict=True))
    chart = Chart("k", "t", [Series("a", points)], x=Axis(is_log=x_log), y=Axis(is_log=y_log))
    (x1, y1), (x2, y2), (x3, y3) = corners(chart)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2)
    assert min(x2 - x1, y1 - y2) > 40


def test_series_share_axes() -> None:
    series = [Series("a", [(0, 0), (10, 4)]), Series("b", [(0, 2), (5, 4)], "line and dots")]
    chart = Chart("k", "t", series, y=Axis(low=0))
    (_, bottom), (right, top) = corners(chart, 0)
    (left, middle), (half, also_top) = corners(chart, 1)
    assert also_top == top
    assert middle == pytest.approx((top + bottom) / 2, abs=0.1)
    assert half == pytest.approx((left + right) / 2, abs=0.1)
    assert names(chart)[-2:] == ["a", "b"]


def test_dots_are_inside_the_plot() -> None:
    for places in ([26.0], [0.1, 0.2]):
        chart = Chart("k", "t", [Series("", [(place, 1.0) for place in places], "dots")])
        dots = [float(dot.attrib["cx"]) for dot in drawing(chart).iter("circle")]
        assert chart.horizontal_scale.start < min(dots)
        assert max(dots) < chart.horizontal_scale.end
        assert chart.horizontal_scale.high - chart.horizontal_scale.low < 3


def test_marks_and_axes_have_names() -> None:
    series = [Series("a", [(0, 1), (10, 5)])]
    chart = Chart("k", "t", series, Axis("step"), Axis("nats"), marks=[(10, "best"), (2, "base")])
    texts = {text.text: float(text.attrib["y"]) for text in drawing(chart).iter("text")}
    assert {"step", "nats", "best", "base"} <= set(texts)
    assert texts["best"] < chart.vertical_scale.end  # above the plot
    assert texts["step"] > chart.vertical_scale.start
    places = [
        line.attrib["d"] for line in drawing(chart).iter("path") if line.get("class") == "mark"
    ]
    assert [float(place[1:].split(" ")[0]) for place in places] == [
        chart.horizontal_scale(10),
        chart.horizontal_scale(2),
    ]


def test_long_names_of_the_legend_are_wrapped() -> None:
    long = "max_steps=150 dev_every_steps=30 checkpoint_every_steps=50 n_checkpoints=1 " * 2
    series = [Series(name, [(0, 1), (1, 2)]) for name in (long, "short", "other")]
    chart = Chart("k", "t", series)
    texts = [text for text in drawing(chart).iter("text") if text.get("class") == "name"]
    assert " ".join(str(text.text) for text in texts) == f"{long}short other"
    assert not any("textLength" in text.attrib for text in texts)
    for text in texts:
        assert float(text.attrib["x"]) + chart.text_width(str(text.text)) <= chart.width
        assert float(text.attrib["y"]) < chart.height
    baselines = [float(text.attrib["y"]) for text in texts]
    assert len(set(baselines[:-2])) == len(baselines) - 2  # one line each
    assert min(baselines[-2:]) > max(baselines[:-2])  # and none over another


def test_second_axis_below_the_first() -> None:
    axis = Axis(
        "step",
        low=0,
        high=10,
        second_name="time",
        second_ticks=[(5, "30 s")],
        point_name=lambda step: f"{step:.0f}, {6 * step:.0f} s",
    )
    chart = Chart("k", "t", [Series("", [(0, 1), (10, 2.9e-5)])], axis)
    places = {
        text.text: (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in drawing(chart).iter("text")
    }
    assert places["30 s"][0] == pytest.approx(chart.horizontal_scale(5), abs=0.1)
    assert places["time"][1] == places["30 s"][1] > places["step"][1] == places["10"][1]
    assert places["step"][0] - chart.text_width("step") > 0
    assert chart.height > places["time"][1]
    first, last = chart.labelled_points(chart.series[0])
    assert (first[2], last[2], last[3]) == ("0, 0 s", "10, 60 s", "2.9 × 10⁻⁵")


def test_axis_ticks_are_round() -> None:
    assert [short(x) for x in (0, 0.0005, 20, 5_000, 1e4, 2e6, 3e18, 2.5e-7)] == [
        *("0", "0.0005", "20", "5,000", "10k", "2M", "3 × 10¹⁸", "2.5 × 10⁻⁷")
    ]
    linear = Chart("k", "t", [Series("", [(0, 3.1), (1, 8.9)])], x=Axis(ticks=[(0, "a")]))
    assert names(linear) == ["2", "4", "6", "8", "10", "a"]
    log = Chart(
        "k", "t", [Series("", [(0, 3), (1, 2e4)])], x=Axis(ticks=[(0, "a")]), y=Axis(is_log=True)
    )
    assert names(log) == ["10", "100", "1,000", "10k", "a"]
    # Within a short range of a logarithmic axis, round numbers at equal distances.
    short_range = replace(log, series=[Series("", [(0, 0.5907), (1, 0.6763)])])
    assert names(short_range) == ["0.6", "0.62", "0.64", "0.66", "a"]


@given(
    st.lists(st.floats(-1e38, 1e38, allow_subnormal=False), min_size=1, max_size=4), st.booleans()
)
def test_chart_of_any_values(values: list[float], is_log: bool) -> None:
    values = [max(abs(value), 1e-38) for value in values] if is_log else values
    chart = Chart("k", "t", [Series("a", list(enumerate(values)))], y=Axis(is_log=is_log))
    assert all(math.isfinite(y) for _, y in corners(chart))
    assert 1 <= len(chart.vertical_scale.ticks) < 12


def test_chart_file_has_style_no_markup() -> None:
    def chart(text: str) -> Chart:
        points = [(1.0, 2.0), (2.0, 4.0)]
        axis = Axis(text, ticks=[(1, text)])
        return Chart("k", text, [Series(text, points, "dots"), Series(text, points)], axis, axis)

    harmless = re.sub("[<>&\"']", "x", visible(HOSTILE))
    plain, hostile = (chart(text).svg(is_file=True) for text in (harmless, HOSTILE))
    plain_root = ElementTree.fromstring(plain)
    hostile_root = ElementTree.fromstring(hostile)
    assert [node.tag for node in hostile_root.iter()] == [node.tag for node in plain_root.iter()]
    assert all(line.isprintable() for line in hostile.split("\n"))
    assert "prefers-color-scheme: dark" in str(plain_root.findtext(f"{SVG}style"))
    assert "url(" not in plain
    assert "@import" not in plain


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ([["demo"]], ["demo"]),
        ([["demo"], ["demo steps=60"]], ["demo", "steps=60"]),
        ([["demo a=1 b=1"], ["demo a=1 b=2"]], ["b=1", "b=2"]),
        # Runs that share a training have the same curve; their beam sizes name nothing.
        ([["d s=6 beam=4", "d s=6 beam=1"], ["d s=9"]], ["s=6", "s=9"]),
        ([["x a=1", "x b=1"], ["x"]], ["x a=1 = x b=1", "x"]),  # short ones would be equal
    ],
)
def test_short_labels_differ(groups: list[list[str]], names: list[str]) -> None:
    assert short_labels(groups) == names
