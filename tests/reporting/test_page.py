"""Pages: complete, accessible, and safe with any text."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from nmtkit.reporting.document import page_of, replace_page
from nmtkit.utils.text import visible
from reporting.conftest import HOSTILE, document_of

LONG = "x" * len(visible(HOSTILE))
VOID = {"meta", "img", "input"}
LOADING_TAGS = {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
LOADING_TAGS |= {"image", "use"}
LOADING = {"src", "srcset", "background", "poster", "action", "data", "xlink:href", "style"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag: str = "") -> Iterator["Element"]:
        for child in self.children:
            if isinstance(child, Element):
                if tag in ("", child.tag):
                    yield child
                yield from child.all(tag)


class Parser(HTMLParser):
    """Reads HTML whose every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].children.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop().tag == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.stack[-1].children.append(data)


def parse(html: str) -> Element:
    parser = Parser()
    parser.feed(html)
    parser.close()
    (root,) = parser.stack
    return root


@pytest.fixture
def root() -> Element:
    return parse(page_of(document_of(HOSTILE)))


# Structure and safety


def test_page_headers_and_directions(root: Element) -> None:
    for table in root.all("table"):
        assert next(table.all()).tag == "caption"
        headers = list(table.all("th"))
        named = {"col"} if any(table.all("thead")) else set()
        assert {"row"} | named <= {header.attributes["scope"] for header in headers}
        assert all(header.text for header in headers)
    regions = [div for div in root.all("div") if div.attributes.get("role") == "region"]
    assert all(region.attributes["aria-label"] for region in regions)
    directions = set()
    for header in root.all("th"):
        if header.text == visible(HOSTILE) and "rowspan" not in header.attributes:
            directions.add(header.attributes.get("dir"))
    assert directions == {"auto"}


def assert_self_contained(page: Element, *allowed: str) -> None:
    """Assert that a page loads and runs nothing, except `allowed` tags and attributes."""
    tags = {element.tag for element in page.all()}
    assert tags.isdisjoint(LOADING_TAGS.difference(allowed))
    for element in page.all():
        assert not LOADING.difference(allowed) & set(element.attributes)
        assert not [name for name in element.attributes if name.startswith("on")]
    (style,) = page.all("style")
    assert not re.search(r"url\(|@import|@font-face", style.text)
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))


def test_hostile_text_on_page() -> None:
    plain = page_of(document_of(LONG))
    hostile = page_of(document_of(HOSTILE))
    tags = [(element.tag, [*element.attributes]) for element in parse(plain).all()]
    assert tags == [(element.tag, [*element.attributes]) for element in parse(hostile).all()]
    assert all(line.isprintable() for line in hostile.split("\n"))


# In a browser

FRAME = """<!doctype html><iframe src="page.html" width="390"></iframe><script>onload = () => {
document.title = document.querySelector("iframe").contentDocument.documentElement.scrollWidth}
</script>"""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Serve a folder; yield its address and the set of requested paths."""
    requested: set[str] = set()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            requested.add(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", requested
        server.shutdown()


def render(address: str, profile: Path) -> tuple[Element, bool]:
    """The page in headless Chromium, and if its console has messages."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    command = [chromium, *options, "--enable-logging=stderr", f"--user-data-dir={profile}"]
    ended = subprocess.run(
        [*command, "--dump-dom", address], capture_output=True, encoding="utf-8", check=True
    )
    return parse(ended.stdout), "CONSOLE" in ended.stderr


def test_browser_renders_page(tmp_path: Path) -> None:
    load = "\" onload='1'<script>console.error(1)</script><img src=/a.png>"
    pages = tmp_path / "pages"
    pages.mkdir()
    replace_page(pages / "page.html", page_of(document_of(load)))
    (pages / "raw.html").write_text(f"<!doctype html>{load}", encoding="utf-8")
    (pages / "frame.html").write_text(FRAME, encoding="utf-8")
    with served(pages) as (address, requested):
        page, has_messages = render(f"{address}/page.html", tmp_path / "profile")
        assert next(page.all("h1")).text == load
        assert not has_messages
        assert requested <= {"/page.html", "/favicon.ico"}
        frame, _ = render(f"{address}/frame.html", tmp_path / "profile")
        assert int(next(frame.all("title")).text) <= 390
        # Without escaping, the script and the image would be loaded.
        _, has_messages = render(f"{address}/raw.html", tmp_path / "profile")
        assert has_messages
        assert "/a.png" in requested
