"""Pages in a real browser: scripts, no scripts, a narrow screen, and paper."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import escape, unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from nmtkit.analysis.attention import SentenceAttention
from nmtkit.analysis.attention_heads import KIND_NAMES, View
from nmtkit.analysis.attention_page import attention_page
from nmtkit.rendering.chart import Axis, Chart, Series
from nmtkit.rendering.document import Part, render_page
from nmtkit.rendering.grid import Grid, MarkedText
from rendering.conftest import ATTACK, document_of
from rendering.test_page import parse

# A page that loads another one in a frame, runs `code` there, and has the result as its title.
# Without `allow-scripts`, the framed page runs none of its own.
FRAME = """<!doctype html><iframe src="page.html" width="{width}" height="700" {sandbox}></iframe>
<script>
onload = () => {{
  const frame = document.querySelector("iframe").contentWindow;
  const page = frame.document;
  const count = (selector) => page.querySelectorAll(selector).length;
  const point = (element, type, kind = "mouse") => {{
    const box = element.getBoundingClientRect();
    const at = {{ clientX: box.x + box.width / 2, clientY: box.y + box.height / 2 }};
    element.dispatchEvent(new PointerEvent(type, {{ ...at, bubbles: true, pointerType: kind }}));
  }};
  document.title = JSON.stringify((() => {{ {code} }})());
}};
</script>"""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Serve a folder; provide its address, and the names that were requested."""
    requests: set[str] = set()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            requests.add(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


@pytest.fixture
def chromium(tmp_path: Path) -> Callable[..., tuple[str, bool]]:
    """Run headless Chromium; return what it prints, and whether the console has messages."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    command = [path, *options, "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}"]

    def run(*arguments: str) -> tuple[str, bool]:
        ended = subprocess.run(
            [*command, *arguments], capture_output=True, encoding="utf-8", check=True
        )
        return ended.stdout, "CONSOLE" in ended.stderr

    return run


@pytest.fixture
def in_frame(
    tmp_path: Path, chromium: Callable[..., tuple[str, bool]]
) -> Callable[..., dict[str, Any]]:
    """Load a page in a frame, run code that inspects it, and return the object it returns."""

    def run(page: str, code: str, *, width: int = 1280, scripts: bool = True) -> dict[str, Any]:
        folder = tmp_path / "pages"
        folder.mkdir(exist_ok=True)
        sandbox = "" if scripts else 'sandbox="allow-same-origin"'
        frame = FRAME.format(width=width, sandbox=sandbox, code=code)
        (folder / "page.html").write_text(page, encoding="utf-8", newline="\n")
        (folder / "frame.html").write_text(frame, encoding="utf-8", newline="\n")
        with served(folder) as (address, requests):
            dom, _ = chromium("--dump-dom", f"{address}/frame.html")
        assert requests <= {"/frame.html", "/page.html", "/favicon.ico"}
        (title,) = re.findall("<title>(.*?)</title>", dom, re.DOTALL)[:1]
        result: dict[str, Any] = json.loads(unescape(title))
        return result

    return run


def n_lines(attention: SentenceAttention, view: View, key: int | None = None) -> int:
    """The number of lines that are drawn: weights of at least 0.02."""
    layer = np.rint(1_000 * np.array(attention.weights[view.kind][view.layer - 1]))
    heads = layer if view.head is None else layer[[view.head - 1]]
    if view.query is not None:
        heads = heads[:, [view.query - 1]]
    if key is not None:
        heads = heads[:, :, [key - 1]]
    return int(np.count_nonzero(heads >= 20))


# What a page runs and requests


def test_browser_page_is_harmless(
    tmp_path: Path, chromium: Callable[..., tuple[str, bool]], attention: SentenceAttention
) -> None:
    (tmp_path / "page.html").write_text(render_page(document_of(ATTACK)), encoding="utf-8")
    (tmp_path / "attention.html").write_text(attention_page(attention), encoding="utf-8")
    (tmp_path / "raw.html").write_text(f"<!doctype html>{ATTACK}", encoding="utf-8")
    with served(tmp_path) as (address, requests):
        dom, complains = chromium("--dump-dom", f"{address}/page.html")
        assert next(parse(dom).all("h1")).text == ATTACK
        assert not complains
        dom, complains = chromium("--dump-dom", f"{address}/attention.html")
        assert escape(ATTACK, quote=False) in dom
        assert not complains
        assert requests <= {"/page.html", "/attention.html", "/favicon.ico"}
        _, complains = chromium("--dump-dom", f"{address}/raw.html")  # what the test would see
        assert complains
        assert "/a.png" in requests


def test_browser_runs_only_the_own_script(
    in_frame: Callable[..., dict[str, Any]], attention: SentenceAttention
) -> None:
    page = attention_page(attention)
    code = (
        'return { lines: count("#lines line"), explorer: !page.querySelector("#explorer").hidden }'
    )
    assert in_frame(page, code)["explorer"]
    other = page.replace('"use strict";', '"use strict"; ', 1)  # another hash
    assert in_frame(other, code) == {"lines": 0, "explorer": False}
    injected = page.replace("<main>", "<main><script>document.title = 'x'</script>")
    assert in_frame(injected, "return { title: page.title }") == {"title": "Attention"}


# The attention page


def test_browser_shows_lines_of_words(
    in_frame: Callable[..., dict[str, Any]], attention: SentenceAttention
) -> None:
    found = in_frame(
        attention_page(attention),
        """
        const lines = () => count("#lines line");
        const words = page.querySelectorAll("#lines .word");
        const result = { first: lines(), texts: [...words].map((word) => word.textContent) };
        point(words[2], "pointerenter");
        result.hover = lines();
        result.strongest = page.querySelector("#strongest li").textContent;
        point(words[2], "pointerleave");
        result.left = lines();
        point(words[8], "pointerenter", "touch");
        point(words[8], "click", "touch");
        point(words[8], "pointerleave", "touch");
        result.tap = lines();
        point(words[8], "click", "touch");
        result.second_tap = lines();
        page.querySelector("#controls button").click();
        result.all_heads = lines();
        page.querySelector("input[name=layer]").click();
        result.first_layer = lines();
        page.querySelector("input[name=kind]").click();
        result.encoder = lines();
        return result;
        """,
    )
    view = View("cross", 2, 1)
    hover = View("cross", 2, 1, 3)
    assert found["first"] == found["left"] == found["second_tap"] == n_lines(attention, view)
    assert found["hover"] == n_lines(attention, hover)
    assert found["tap"] == n_lines(attention, view, key=2)
    assert found["all_heads"] == n_lines(attention, View("cross", 2))
    assert found["first_layer"] == n_lines(attention, View("cross", 1))
    assert found["encoder"] == n_lines(attention, View("encoder", 1))
    weights = attention.weights["cross"][1][0][2]
    strongest = attention.words["cross"][1][int(np.argmax(weights))]
    assert found["strongest"] == f"<b>es</b> → {strongest} {max(weights):.2f}, head 1"
    assert "<U+202E>so" in "".join(found["texts"])


def test_browser_without_scripts_shows_drawings(
    in_frame: Callable[..., dict[str, Any]], attention: SentenceAttention
) -> None:
    code = """return {
        drawings: count("noscript figure svg"),
        explorer: page.querySelector("#explorer").offsetParent !== null,
        width: page.documentElement.scrollWidth,
    }"""
    found = in_frame(attention_page(attention), code, width=390, scripts=False)
    assert found["drawings"] == len(KIND_NAMES) * 2 * (1 + 3)  # of layers: all heads, each head
    assert not found["explorer"]
    assert found["width"] <= 390


# All pages


def document() -> Part:
    """A document with a wide table, a table of texts, and a chart."""
    names = [f"test set number {number}" for number in range(12)]
    cells = ["31.25 [30.75, 31.75]"] * len(names)
    wide = Grid.of("Wide", ("run", *names), [("a-run-with-a-long-name", *cells)], 1)
    marked = MarkedText([("das", False), ("kleine Haus", True)])
    texts = [("7", "first-system", marked, "31.5"), ("7", "second-system", "das Haus", "30.5")]
    points = [(float(step), 1 / step) for step in range(1, 200)]
    series = [Series("train", points), Series("dev", points[::50], "line and dots")]
    return Part(
        "all",
        "All",
        parts=[
            Part("wide", "Wide", table=wide, charts=[Chart("c", "Loss", series, Axis("step"))]),
            Part(
                "texts",
                "Texts",
                "Run `nmtkit run demo` first.",
                table=Grid("", ("line", "", "text", "chrF2"), 3, [texts], has_texts=True),
            ),
        ],
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_browser_width_of_pages(
    in_frame: Callable[..., dict[str, Any]], attention: SentenceAttention, width: int
) -> None:
    code = """
        const inside = (element) => {
          const box = element.getBoundingClientRect();
          return box.left >= 0 && box.right <= page.documentElement.clientWidth;
        };
        return {
          page: page.documentElement.scrollWidth,
          scrolls: [...page.querySelectorAll(".scroll")].map(
            (box) => box.scrollWidth > box.clientWidth,
          ),
          texts: [...page.querySelectorAll("#texts th, #texts td")].map(inside),
        };
    """
    for content in (document_of(ATTACK), document()):
        found = in_frame(render_page(content), code, width=width)
        assert found["page"] <= width
    assert found["scrolls"] == [True, False]  # the wide table, in its own box
    assert all(found["texts"])  # both systems are in sight
    assert in_frame(attention_page(attention), code, width=width)["page"] <= width


def test_browser_shows_values_at_pointer(in_frame: Callable[..., dict[str, Any]]) -> None:
    code = """
        const chart = page.querySelector("svg.chart");
        const values = page.querySelector(".values");
        const result = { before: values.hidden, code: page.querySelector("p code").textContent };
        point(chart, "pointermove");
        result.lines = [...values.children].map((line) => line.textContent);
        point(chart, "pointerleave");
        return { ...result, after: values.hidden, mark: page.querySelector("mark").textContent };
    """
    found = in_frame(render_page(document()), code)
    assert (found["before"], found["after"]) == (True, True)
    assert (found["code"], found["mark"]) == ("nmtkit run demo", "kleine Haus")
    step = int(found["lines"][0].removeprefix("step "))
    assert found["lines"][1] == f"train: {1 / step:.4g}"
    assert any(line.startswith("dev: ") for line in found["lines"])


def test_browser_prints_whole_tables(
    tmp_path: Path, chromium: Callable[..., tuple[str, bool]]
) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed")
    (tmp_path / "page.html").write_text(render_page(document()), encoding="utf-8")
    pdf = tmp_path / "page.pdf"
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", f"file://{tmp_path}/page.html")
    command = ["pdftotext", "-bbox", str(pdf), "-"]
    boxes = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    (page_width,) = set(re.findall(r'<page width="([\d.]+)"', boxes))
    words = re.findall(r'xMin="([\d.-]+)".* xMax="([\d.]+)".*>(.*)</word>', boxes)
    texts = [text for _, _, text in words]
    assert texts.count("[30.75,") == 12
    for left, right, text in words:
        assert 0 <= float(left) < float(right) <= float(page_width), text
