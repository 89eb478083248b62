"""Pages: complete, accessible, and safe with any text."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest

from nmtkit.rendering.document import render_page
from nmtkit.utils.text import visible
from rendering.conftest import HOSTILE, document_of

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
    return parse(render_page(document_of(HOSTILE)))


# Structure and safety


def test_page_headers_and_directions(root: Element) -> None:
    for table in root.all("table"):
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


def sha256(script: str) -> str:
    """The name of a script in a content security policy."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def assert_self_contained(page: Element, *allowed: str) -> None:
    """Assert that a page loads nothing, except `allowed`, and runs only its own script."""
    tags = {element.tag for element in page.all()}
    assert tags.isdisjoint(LOADING_TAGS.difference(allowed, ["script"]))
    for element in page.all():
        assert not LOADING.difference(allowed) & set(element.attributes)
        assert not [name for name in element.attributes if name.startswith("on")]
    (style,) = page.all("style")
    assert not re.search(r"url\(|@import|@font-face", style.text)
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta.attributes)
    scripts = [script for script in page.all("script") if "type" not in script.attributes]
    (hash_,) = {sha256(script.text) for script in scripts}
    assert policy.attributes["content"].startswith(
        f"default-src 'none'; style-src 'unsafe-inline'; script-src '{hash_}'; "
    )
    data = [script for script in page.all("script") if script not in scripts]
    assert {script.attributes["type"] for script in data} <= {"application/json"}
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(ids) == len(set(ids))


def test_hostile_text_on_page() -> None:
    plain = render_page(document_of(LONG))
    hostile = render_page(document_of(HOSTILE))
    tags = [(element.tag, [*element.attributes]) for element in parse(plain).all()]
    assert tags == [(element.tag, [*element.attributes]) for element in parse(hostile).all()]
    assert all(line.isprintable() for line in hostile.split("\n"))
