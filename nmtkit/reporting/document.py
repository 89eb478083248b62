"""A document: a page of HTML (document.html.j2), Markdown, and files for a paper."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.reporting.grid import WRITERS, Grid, as_markdown, markdown
from nmtkit.store.files import whole_file
from nmtkit.utils.text import visible

FILE_ENDINGS = {"markdown": "md", "latex": "tex", "csv": "csv"}


def _visible_value(value: Any) -> Any:
    """Name the invisible characters of a value that a template prints, unless it is markup."""
    return value if hasattr(value, "__html__") else visible(str(value))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    finalize=_visible_value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


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
    text: str = ""  # a paragraph; of a whole document, one paragraph per line
    code: str = ""  # preformatted lines
    table: Grid | None = None
    charts: Sequence[Drawing] = ()
    notes: Sequence[str] = ()
    parts: Sequence["Part"] = ()
    is_folded: bool = False  # a page hides its content until it is opened, and it has no files


def page_of(part: Part) -> str:
    """Return a document as a page for a browser; its notes are the footer."""
    return TEMPLATES.get_template("document.html.j2").render(document=part)


def replace_page(path: Path, page: str) -> None:
    """Write a page to a file, which is replaced when the page is complete."""
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


def markdown_of(part: Part, level: int = 1) -> Iterator[str]:
    """Yield the paragraphs of a document as Markdown.

    Args:
        part: The document, or a section of one.
        level: Level of its heading.
    """
    yield f'{"#" * level} <a id="{part.key}"></a>{markdown(part.title)}'
    if part.text:
        yield markdown(part.text)
    if part.code:
        # Four spaces make a code block, in which nothing is markup.
        yield "\n".join(f"    {visible(line)}" for line in part.code.split("\n"))
    if part.table:
        yield as_markdown(part.table)
    if not part.is_folded:
        for chart in part.charts:
            yield f"![{markdown(chart.title)}](charts/{chart.key}.svg)"
    if part.notes:
        yield "\n".join(f"- {markdown(note)}" for note in part.notes)
    for section in part.parts:
        yield from markdown_of(section, level + 1)


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
    """Return a table whose links, which lead to other parts of a page, are plain text."""
    groups = []
    for group in table.groups:
        rows = []
        for row in group:
            rows.append(tuple(str(cell) for cell in row))
        groups.append(rows)
    return replace(table, groups=groups)
