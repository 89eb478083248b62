"""A document: a page of HTML (document.html.j2), Markdown, and files for a paper."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nmtkit.rendering.grid import WRITERS, Grid, as_markdown, markdown
from nmtkit.store.files import whole_file
from nmtkit.utils.text import visible

FILE_ENDINGS = {"markdown": "md", "latex": "tex", "csv": "csv"}


def _visible_value(value: Any) -> Any:
    """Name the invisible characters of a value that a template prints, unless it is markup."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _prose(text: str) -> Markup:
    """Return a text as HTML, with commands between backticks as code."""
    pieces = []
    for number, piece in enumerate(_code_pieces(text)):
        if number % 2:
            pieces.append(Markup("<code>{}</code>").format(visible(piece)))
        else:
            pieces.append(escape(visible(piece)))
    return Markup().join(pieces)


def _with_interval(cell: str) -> str:
    """Return a cell of numbers as HTML, with an interval or a number and its unit on one line."""
    match = re.fullmatch(r"(.+ )(\[.+\])", visible(cell))
    if match is None:
        words = re.split("(?<=[0-9]) (?=[%M×])|(?<=×) (?=[0-9])", visible(cell))
        return Markup("&nbsp;").join(words)
    return Markup('{}<span class="interval">{}</span>').format(match[1], match[2])


def _prose_markdown(text: str) -> str:
    """Return a text as Markdown, with commands between backticks as code."""
    pieces = []
    for number, piece in enumerate(_code_pieces(text)):
        pieces.append(f"`{visible(piece)}`" if number % 2 else markdown(piece))
    return "".join(pieces)


def _code_pieces(text: str) -> list[str]:
    """Split a text at backticks: every second piece is code. A single backtick is text."""
    # An even number of pieces means that a backtick has no partner.
    pieces = text.split("`")
    return pieces if len(pieces) % 2 else [text]


FOLDER = Path(__file__).parent
_ENVIRONMENT = Environment(
    autoescape=True,
    finalize=_visible_value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.filters["prose"] = _prose
_ENVIRONMENT.filters["with_interval"] = _with_interval
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # compact, keys unsorted


@cache
def templates(folder: Path = FOLDER) -> Environment:
    """Return the templates in a folder. They may extend and include those of this package."""
    return _ENVIRONMENT.overlay(loader=FileSystemLoader([folder, FOLDER]))


class Drawing(Protocol):
    """A chart, or another drawing."""

    @property
    def key(self) -> str:
        """Id on the page, and name of the file."""

    @property
    def title(self) -> str:
        """Caption."""

    def svg(self, *, is_file: bool = False) -> str:
        """Return SVG for a page, or for a file of its own."""


@dataclass(frozen=True)
class Part:
    """A document, or a section of one."""

    key: str  # id, of letters, digits and hyphens, and name of the files of the table
    title: str
    text: str = ""  # a paragraph; of a whole document, one paragraph per line without code
    code: str = ""  # preformatted lines
    table: Grid | None = None
    charts: Sequence[Drawing] = ()
    notes: Sequence[str] = ()
    parts: Sequence["Part"] = ()
    is_folded: bool = False  # a page hides its content until it is opened, and it has no files


@dataclass(frozen=True)
class Script:
    """A script within a page."""

    text: str

    @property
    def hash(self) -> str:
        """The hash that allows this script, and no other, in the content security policy."""
        digest = hashlib.sha256(self.text.encode("utf-8")).digest()
        return f"sha256-{b64encode(digest).decode('ascii')}"


def render_page(
    part: Part,
    *,
    folder: Path = FOLDER,
    template: str = "document.html.j2",
    script: str = "chart.js",
    **values: object,
) -> str:
    """Return a document as a page for a browser; its notes are the footer.

    Args:
        folder: Contains the template and the script.
        template: The template of the page. It extends document.html.j2.
        script: The only script that the page runs. Without scripts, the page shows all but what
            a pointer asks for.
        values: Other values that the template needs.
    """
    # The browser hashes the text between the tags: the page must have exactly these bytes.
    text = (folder / script).read_text(encoding="utf-8")
    page = templates(folder).get_template(template)
    return page.render(document=part, script=Script(text), **values)


def replace_page(path: Path, page: str, *, follow_link: bool = True) -> None:
    """Write a page to a file. The old one is replaced when the page is complete.

    Args:
        follow_link: See `whole_file`.
    """
    with whole_file(path, follow_link=follow_link) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


def markdown_paragraphs(part: Part, level: int = 1) -> Iterator[str]:
    """Yield the paragraphs of a document as Markdown.

    Args:
        part: The document, or a section of one.
    """
    yield f'{"#" * level} <a id="{part.key}"></a>{markdown(part.title)}'
    if part.text:
        yield _prose_markdown(part.text)
    if part.code:
        # Four spaces make a code block, where nothing is markup.
        lines = []
        for line in part.code.split("\n"):
            lines.append(f"    {visible(line)}")
        yield "\n".join(lines)
    if part.table:
        yield as_markdown(part.table)
    # Charts of folded parts are not among the files.
    if not part.is_folded:
        for chart in part.charts:
            yield f"![{markdown(chart.title)}](charts/{chart.key}.svg)"
    if part.notes:
        items = []
        for note in part.notes:
            items.append(f"- {_prose_markdown(note)}")
        yield "\n".join(items)
    for section in part.parts:
        yield from markdown_paragraphs(section, level + 1)


def files_for_paper(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of files: tables and charts that are not folded."""
    if part.is_folded:
        return
    if part.table:
        table = _without_links(part.table)
        for file_format, write in WRITERS.items():
            yield f"tables/{part.key}.{FILE_ENDINGS[file_format]}", f"{write(table)}\n"
    for chart in part.charts:
        yield f"charts/{chart.key}.svg", chart.svg(is_file=True)
    for section in part.parts:
        yield from files_for_paper(section)


def _without_links(table: Grid) -> Grid:
    """Return a table with plain text instead of links to other parts of a page."""
    groups = []
    for group in table.groups:
        rows = []
        for row in group:
            rows.append(tuple(map(str, row)))
        groups.append(rows)
    return replace(table, groups=groups)
