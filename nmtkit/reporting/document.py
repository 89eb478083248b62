"""A document in parts: one page of HTML (report.html.j2), Markdown, and files for a paper."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nmtkit.reporting.chart import Chart, svg_file
from nmtkit.reporting.grid import WRITERS, Grid, as_markdown, markdown
from nmtkit.reporting.page import replace_page
from nmtkit.visible import visible

ENDINGS = {"markdown": "md", "latex": "tex", "csv": "csv"}


@dataclass(frozen=True)
class Part:
    """A part of a document, with parts of its own.

    Attributes:
        key: Its id, of letters, digits and hyphens.
        title: Its heading.
        text: A paragraph; "" for none.
        code: Lines to show as they are.
        tables: Tables by the names of their files.
        charts: Charts, whose keys name their files.
        notes: A list of sentences.
        parts: Parts within it.
        is_folded: Whether a page hides it until it is opened; then it has no files.
        aside: What a page shows beside the heading of a folded part.
    """

    key: str
    title: str
    text: str = ""
    code: str = ""
    tables: Mapping[str, Grid] = field(default_factory=dict)
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()
    parts: Sequence["Part"] = ()
    is_folded: bool = False
    aside: str = ""


def markdown_of(parts: Sequence[Part], level: int = 2) -> Iterator[str]:
    """Yield the paragraphs of a document."""
    for part in parts:
        yield f'{"#" * level} <a id="{part.key}"></a>{markdown(part.title)}'
        if part.text:
            yield markdown(part.text)
        if part.code:
            yield "\n".join(f"    {visible(line)}" for line in part.code.split("\n"))
        yield from map(as_markdown, part.tables.values())
        for chart in () if part.is_folded else part.charts:
            yield f"![{markdown(chart.title)}](charts/{chart.key}.svg)"
        if part.notes:
            yield "\n".join(f"- {markdown(note)}" for note in part.notes)
        yield from markdown_of(part.parts, level + 1)


def write_for_paper(parts: Sequence[Part], folder: Path) -> None:
    """Write the tables and charts of all parts that are not folded, each whole or not at all."""
    for part in parts:
        if not part.is_folded:
            for name, grid in part.tables.items():
                plain = [
                    [tuple(map(str, row)) for row in group] for group in grid.groups
                ]  # no links
                for form, write in WRITERS.items():
                    text = write(replace(grid, groups=plain))
                    _write(folder / "tables" / f"{name}.{ENDINGS[form]}", f"{text}\n")
            for chart in part.charts:
                _write(folder / "charts" / f"{chart.key}.svg", svg_file(chart))
            write_for_paper(part.parts, folder)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_page(path, text)
