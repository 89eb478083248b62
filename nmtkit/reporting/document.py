"""A document in parts: one page of HTML (document.html.j2), Markdown, and files for a paper."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.reporting.grid import WRITERS, Grid, as_markdown, markdown
from nmtkit.store.files import whole_file
from nmtkit.utils.text import visible

ENDINGS = {"markdown": "md", "latex": "tex", "csv": "csv"}


def _shown(value: Any) -> Any:
    """Name what is unseen in a value that a template prints; only its macros return markup."""
    return value if hasattr(value, "__html__") else visible(str(value))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class Drawing(Protocol):
    """A chart, or another drawing."""

    @property
    def key(self) -> str: ...

    @property
    def title(self) -> str: ...

    def svg(self, *, is_file: bool = False) -> str:
        """Return SVG for a page, or for a file by itself."""


@dataclass(frozen=True)
class Part:
    key: str  # its id, of letters, digits and hyphens, and the name of the files of its table
    title: str
    text: str = ""  # a paragraph; of a whole document, one in each line
    code: str = ""  # lines to show as they are
    table: Grid | None = None
    charts: Sequence[Drawing] = ()  # whose keys name their files
    notes: Sequence[str] = ()
    parts: Sequence["Part"] = ()
    is_folded: bool = False  # a page hides it until it is opened; then it has no files


def page_of(part: Part) -> str:
    """Return a document as a page for a browser; its notes are the footer."""
    return TEMPLATES.get_template("document.html.j2").render(document=part)


def replace_page(path: Path, page: str) -> None:
    """Write a page to `path`, whole or not at all, as `whole_file` does."""
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


def markdown_of(part: Part, level: int = 1) -> Iterator[str]:
    yield f'{"#" * level} <a id="{part.key}"></a>{markdown(part.title)}'
    if part.text:
        yield markdown(part.text)
    if part.code:
        yield "\n".join(f"    {visible(line)}" for line in part.code.split("\n"))
    if part.table:
        yield as_markdown(part.table)
    for chart in () if part.is_folded else part.charts:
        yield f"![{markdown(chart.title)}](charts/{chart.key}.svg)"
    if part.notes:
        yield "\n".join(f"- {markdown(note)}" for note in part.notes)
    for each in part.parts:
        yield from markdown_of(each, level + 1)


def files_for_paper(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each table and chart that is not folded."""
    if part.is_folded:
        return
    if part.table:
        without_links = [[tuple(map(str, row)) for row in group] for group in part.table.groups]
        for form, write in WRITERS.items():
            text = write(replace(part.table, groups=without_links))
            yield f"tables/{part.key}.{ENDINGS[form]}", f"{text}\n"
    for chart in part.charts:
        yield f"charts/{chart.key}.svg", chart.svg(is_file=True)
    for each in part.parts:
        yield from files_for_paper(each)
