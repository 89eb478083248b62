"""What pages do for a pointer, a key and a printer, in a real browser."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from nmtkit.analysis.attention import SentenceAttention
from nmtkit.analysis.attention_heads import KIND_NAMES, View, find_heads
from nmtkit.analysis.attention_page import attention_page, head_colour
from nmtkit.rendering.chart import Axis, Chart, Series
from nmtkit.rendering.document import Part, render_page
from rendering.browser import Browser, chromium_path
from rendering.conftest import document_of

COUNT_LINES = "document.querySelectorAll('#lines line').length"
FOCUSED = "document.activeElement.getAttribute('aria-label')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if chromium_path() is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    with Browser(tmp_path) as browser:
        yield browser


def write(folder: Path, page: str) -> Path:
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8", newline="\n")
    return path


def rows(browser: Browser) -> list[str]:
    """The rows of the list of the strongest weights."""
    found: list[str] = browser.run(
        "[...document.querySelectorAll('#strongest li')].map((row) => row.textContent)"
    )
    return found


# The attention page


def test_keys_move_between_words(
    browser: Browser, tmp_path: Path, attention: SentenceAttention
) -> None:
    browser.open(write(tmp_path, attention_page(attention)))
    assert browser.run("document.querySelectorAll('#lines [tabindex=\"0\"]').length") == 1
    all_lines = browser.run(COUNT_LINES)
    browser.run("document.querySelector('#controls button:last-of-type').focus()")
    # The next tab stop after the buttons is a word; one more leaves the words.
    for _ in range(20):
        browser.press("Tab")
        if browser.run("document.activeElement.matches('#lines .word')"):
            break
    assert browser.run(FOCUSED) == "Das, word written"
    assert 0 < browser.run(COUNT_LINES) < all_lines
    places = []
    for key in ("ArrowDown", "ArrowRight", "ArrowUp", "ArrowUp", "End", "ArrowLeft", "Home"):
        browser.press(key)
        places.append(browser.run(FOCUSED).removesuffix("word"))
    assert places == [
        "ist, word written",
        "</script>, source ",
        "The, source ",
        "The, source ",
        "</s>, source ",
        "<U+202E>so, word written",
        "Das, word written",
    ]
    browser.press("Enter", "Tab")
    assert browser.run("document.activeElement.matches('#overview button')")
    assert 0 < browser.run(COUNT_LINES) < all_lines  # those of the chosen word
    browser.press("Escape")
    assert browser.run(COUNT_LINES) == all_lines


def test_overview_leads_to_a_head(
    browser: Browser, tmp_path: Path, attention: SentenceAttention
) -> None:
    browser.open(write(tmp_path, attention_page(attention)))
    n_thumbs = browser.run("document.querySelectorAll('#overview canvas').length")
    assert n_thumbs == 2 * 3
    pixels = browser.run(
        "[...document.querySelectorAll('#overview canvas')].map((canvas) => canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"
    )
    assert all(pixels)
    browser.click("#overview button", 4)
    title = "document.querySelector('#lines .head').textContent"
    assert browser.run(title) == "encoder-decoder attention, layer 2, head 2"
    pressed = "document.querySelector('#overview [aria-pressed=true]').title"
    assert browser.run(pressed) == "layer 2, head 2"
    browser.press("ArrowUp", "Enter")  # the head above
    assert browser.run(title) == "encoder-decoder attention, layer 1, head 2"
    browser.click("#controls button", 0)
    assert browser.run(title) == "encoder-decoder attention, layer 1, all heads123"
    browser.click("#controls button", 1)
    assert browser.run(title) == "encoder-decoder attention, layer 1, no head"
    assert "No head is chosen" in browser.run("document.querySelector('#strongest').textContent")


def test_strongest_lists_drawn_weights(
    browser: Browser, tmp_path: Path, attention: SentenceAttention
) -> None:
    layers = attention.weights["cross"]
    for layer in layers:
        for head in layer:
            for row in head:  # all attention is on one word
                row[:] = [1.0] + [0.0] * (len(row) - 1)
    browser.open(write(tmp_path, attention_page(attention)), width=390)
    assert len(rows(browser)) == 5  # without a word: of all words
    browser.move("#lines .word", 2)
    assert rows(browser) == ["<b>es</b> → The 1.00, head 1"]
    words = browser.box("#lines svg")
    text = browser.box("#strongest")
    words = browser.run("document.querySelector('#lines svg').getBoundingClientRect().toJSON()")
    assert text["top"] >= words["bottom"]  # it covers no word


def test_saved_drawings(browser: Browser, tmp_path: Path, attention: SentenceAttention) -> None:
    browser.open(write(tmp_path, attention_page(attention)))
    files = {}
    n_buttons = browser.run("document.querySelectorAll('#controls button').length")
    for button, suffix in ((n_buttons - 2, "svg"), (n_buttons - 1, "png")):
        browser.click("#controls button", button)
        files[suffix] = browser.downloads / f"attention-cross-2-1.{suffix}"
        for _ in range(200):
            if files[suffix].exists():
                break
            time.sleep(0.05)
    root = ElementTree.fromstring(files["svg"].read_text(encoding="utf-8"))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "encoder-decoder attention, layer 2, head 1"
    assert {"Das", "<b>es</b>", "</script>"} <= set(texts)
    n_lines = len(list(root.iter("{http://www.w3.org/2000/svg}line")))
    browser.open(write(tmp_path, attention_page(attention)))
    assert n_lines == browser.run(COUNT_LINES)
    assert files["png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("n_heads", [1, 2, 8, 16])
def test_colours_have_contrast(n_heads: int) -> None:
    for head in range(n_heads):
        colour = head_colour(head, n_heads)
        assert min(contrast(colour, background) for background in ("#ffffff", "#000000")) >= 3
        assert contrast(colour, "#151618") >= 3  # of a dark page
    style = render_page(document_of("x"))
    colours = re.findall(r"\.chart \.s\d { stroke: (#\w+)", style)
    assert len(colours) == Chart.n_colours
    for colour in colours:
        assert min(contrast(colour, background) for background in ("#ffffff", "#151618")) >= 3


def contrast(colour: str, other: str) -> float:
    """The contrast of two colours, by the formula of WCAG 2.2."""
    luminances = []
    for text in (colour, other):
        channels = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    darker, lighter = sorted(luminances)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.fixture
def long_page(tmp_path: Path) -> Path:
    """A page of random weights of 50 words, with findings of all kinds."""
    words = [f"word{number}" for number in range(49)] + ["</s>"]
    weights = np.random.default_rng(5).dirichlet(np.full(50, 0.02), size=(2, 3, 50))
    attention = SentenceAttention(
        bundle="runs/average/0123",
        source="a",
        target="b",
        is_given=True,
        words=dict.fromkeys(KIND_NAMES, (words, words)),
        weights=dict.fromkeys(KIND_NAMES, weights.tolist()),
        alignment=View("cross", 2, 1),
        findings=find_heads(weights, weights, words, "en"),
    )
    return write(tmp_path, attention_page(attention))


@pytest.mark.parametrize("width", [390, 1280])
def test_words_of_wide_drawings_are_legible(browser: Browser, long_page: Path, width: int) -> None:
    browser.open(long_page, width=width)
    drawings = "[...document.querySelectorAll('figure svg')]"
    scales = browser.run(f"{drawings}.map((svg) => svg.getScreenCTM().a)")
    assert scales
    assert min(scales) >= 0.79  # the words have 13 pixels in the drawing
    assert browser.run("document.documentElement.scrollWidth") <= width  # each scrolls by itself
    browser.use_paper()
    inside = "svg.getBoundingClientRect().right <= svg.parentElement.getBoundingClientRect().right"
    assert browser.run(f"{drawings}.every((svg) => {inside} + 1)")


def test_long_drawing_is_printed_on_one_page(browser: Browser, long_page: Path) -> None:
    browser.open(long_page)
    page_height = (297 - 2 * 15) / 25.4 * 96  # of A4 without margins, in pixels
    assert browser.box("#lines svg")["height"] > page_height
    browser.use_paper()
    drawing = browser.box("#lines svg")
    assert drawing["height"] < page_height
    last = browser.box("#lines .word:last-of-type text")
    assert last["bottom"] <= drawing["bottom"]


# Charts


def chart_page(name: str = "train") -> str:
    values = [(float(step), 2 + step % 2) for step in range(1, 101)]
    series = [Series(name, values, is_noisy=True), Series("dev", values[9::10], "line and dots")]
    chart = Chart("loss", "Loss", series, Axis("step", low=0))
    return render_page(Part("all", "All", parts=[Part("curves", "Curves", charts=[chart])]))


@pytest.mark.parametrize("width", [390, 1280])
def test_values_do_not_cover_their_points(browser: Browser, tmp_path: Path, width: int) -> None:
    # On a narrow screen, the box of a long name fits at neither side of a point in the middle.
    browser.open(write(tmp_path, chart_page("training, 25,000 tokens")), width=width)
    for share in (0.1, 0.35, 0.5, 0.65, 0.95):
        browser.move("svg.chart", share=share)
        box = browser.run("document.querySelector('.values').getBoundingClientRect().toJSON()")
        assert box["width"] > 0
        assert 0 <= box["left"] < box["right"] <= width
        lines = "[...document.querySelectorAll('.values div')].map((line) => line.textContent)"
        steps = [line.removeprefix("step ") for line in browser.run(lines) if "step" in line]
        assert steps
        # The points at these steps, on the screen.
        points = browser.run(
            """[...document.querySelectorAll("svg.chart g[data-points]")].flatMap((group) => {
              const matrix = group.getScreenCTM();
              return JSON.parse(group.dataset.points).map(([x, y, place]) => {
                const point = new DOMPoint(x, y).matrixTransform(matrix);
                return [place, point.x, point.y];
              });
            })"""
        )
        for place, x, y in points:
            if place in steps:
                is_left_or_right = not box["left"] <= x <= box["right"]
                assert is_left_or_right or not box["top"] <= y <= box["bottom"]


def test_smoothing_by_keys(browser: Browser, tmp_path: Path) -> None:
    browser.open(write(tmp_path, chart_page()))
    heights = """(() => {
      const d = document.querySelector("g[data-name=train] path:not(.raw)").getAttribute("d");
      return d.slice(1).split("L").map((point) => Number(point.split(" ")[1]));
    })()"""
    raw = browser.run(heights)
    browser.run("document.querySelector('.smoothing input').focus()")
    browser.press(*["ArrowRight"] * 90)
    smoothed = browser.run(heights)
    assert len(smoothed) == len(raw)
    assert smoothed[0] == raw[0]
    assert max(smoothed[50:]) - min(smoothed[50:]) < 0.1 * (max(raw) - min(raw))
    assert min(raw) < smoothed[-1] < max(raw)
    # The mean of a long alternation is in the middle.
    assert smoothed[-1] == pytest.approx((min(raw) + max(raw)) / 2, rel=0.05)
    assert browser.run("document.querySelectorAll('path.raw').length") == 1
    assert browser.run("document.querySelector('g[data-name=dev] .raw')") is None
    browser.move("svg.chart", share=0.5)
    text = browser.run("document.querySelector('.values').textContent")
    assert re.search(r"train: [23], smoothed 2\.\d", text)
    browser.run("document.querySelector('.smoothing input').focus()")
    browser.press("Home")
    assert browser.run(heights) == raw
    assert browser.run("document.querySelectorAll('path.raw').length") == 0


# Paper


@pytest.mark.parametrize("scripts", [True, False])
def test_closed_sections_are_printed(browser: Browser, tmp_path: Path, scripts: bool) -> None:
    part = Part("folded", "Recipe", code="d_model = 512", is_folded=True)
    page = render_page(Part("all", "All", parts=[part, Part("open", "Open", text="x")]))
    path = write(tmp_path, page)
    browser.open(path, scripts=scripts)
    is_visible = "document.querySelector('pre').checkVisibility()"
    assert not browser.run(is_visible)
    browser.use_paper()
    assert browser.run(is_visible)
    assert browser.run("document.querySelector('details').open") is False


def test_printed_attention_names_its_view(
    browser: Browser, tmp_path: Path, attention: SentenceAttention
) -> None:
    browser.open(write(tmp_path, attention_page(attention)))
    browser.use_paper()
    title = browser.run("document.querySelector('#lines .head').getBoundingClientRect().toJSON()")
    assert title["height"] > 0
    for hidden in ("#controls", "#hint"):
        assert browser.box(hidden)["height"] == 0
