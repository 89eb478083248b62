"""A table, and how it is written for a terminal, as Markdown, as LaTeX and as CSV.

Pages have a macro of their own for it, in document.html.j2.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from rich.cells import cell_len
from rich.table import Table
from tabulate import tabulate

from nmtkit.utils.text import visible

Row = tuple[str, ...]


class Link(str):
    """A cell; on a page, a link to the element with the id `target`."""

    target: str

    def __new__(cls, text: str, target: str) -> "Link":
        link = super().__new__(cls, text)
        link.target = target
        return link

    def __html__(self) -> Markup:
        return Markup('<a href="#{}">{}</a>').format(self.target, visible(str(self)))


@dataclass(frozen=True)
class Grid:
    """A table whose rows stand in groups; a line or a space separates groups of several rows."""

    title: str  # "" for none
    columns: Row  # their heads; all of them "" for none
    n_labels: int  # the first columns, which hold text; the others hold numbers
    groups: Sequence[Sequence[Row]]  # in one, a first cell that repeats the last is not shown

    @classmethod
    def of(cls, title: str, columns: Sequence[str], rows: Sequence[Row], n_labels: int) -> "Grid":
        """Return a table whose rows stand in no groups."""
        return cls(title, tuple(columns), n_labels, [[row] for row in rows])

    def without(self, *columns: int) -> "Grid":
        kept = [column for column in range(len(self.columns)) if column not in columns]
        groups = [[tuple(row[i] for i in kept) for row in group] for group in self.groups]
        n_labels = sum(column < self.n_labels for column in kept)
        return Grid(self.title, tuple(self.columns[i] for i in kept), n_labels, groups)

    def filled(self) -> "Grid":
        """Return the table without the columns of numbers where all cells are empty."""
        rows = [row for group in self.groups for row in group]
        numbers = range(self.n_labels, len(self.columns))
        return self.without(*(i for i in numbers if not any(row[i] for row in rows)))

    def rows(self) -> list[list[Row]]:
        """Return the groups as they are shown: nothing unseen, no first cell twice."""
        return [
            [
                ("" if i and row[0] == group[i - 1][0] else _shown(row[0]), *map(_shown, row[1:]))
                for i, row in enumerate(group)
            ]
            for group in self.groups
        ]


def _shown(cell: str) -> str:
    return "\n".join(map(visible, cell.split("\n")))


def as_rich(grid: Grid) -> Table:
    table = Table(
        title=visible(grid.title) or None,
        title_justify="left",
        show_header=any(grid.columns),
        min_width=cell_len(grid.title) + 1,  # or else a long title is folded
    )
    for number, name in enumerate(grid.columns):
        justify = "left" if number < grid.n_labels else "right"
        table.add_column(_shown(name), overflow="fold", justify=justify)  # type: ignore[arg-type]
    for group in grid.rows():
        for row in group:
            table.add_row(*row)
        if len(group) > 1:
            table.add_section()
    return table


def as_markdown(grid: Grid) -> str:
    aligned = ["---" if i < grid.n_labels else "--:" for i in range(len(grid.columns))]
    rows = [grid.columns, *(row for group in grid.groups for row in group)]
    head, *body = (f"| {' | '.join(map(markdown, row))} |" for row in rows)
    title = [f"**{markdown(grid.title)}**", ""] if grid.title else []
    return "\n".join([*title, head, f"|{'|'.join(aligned)}|", *body])


def markdown(text: str) -> str:
    """Return text that Markdown shows as it is; a link stays one."""
    shown = "<br>".join(
        re.sub(r"([\\|<>\[\]*_`&])", r"\\\1", visible(line)) for line in text.split("\n")
    )
    return f"[{shown}](#{text.target})" if isinstance(text, Link) else shown


def as_latex(grid: Grid) -> str:
    """Return the table for a paper that uses the package booktabs."""
    rows = [[cell.replace("\n", ", ") for cell in row] for rows in grid.rows() for row in rows]
    heads = [*map(_shown, grid.columns)] if any(grid.columns) else []
    sides = ["left" if i < grid.n_labels else "right" for i in range(len(grid.columns))]
    table: str = tabulate(rows, heads, "latex_booktabs", colalign=sides, disable_numparse=True)
    return f"% {visible(grid.title)}\n{table}" if grid.title else table


def as_csv(grid: Grid) -> str:
    """Return the table for a spreadsheet: a number has no commas between its digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(visible(_number(name)) for name in grid.columns)
    for group in grid.groups:
        writer.writerows([visible(_number(cell)) for cell in row] for row in group)
    return text.getvalue().removesuffix("\n")


def _number(cell: str) -> str:
    is_number = re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", cell)
    return cell.replace(",", "") if is_number else cell.replace("\n", ", ")


WRITERS: dict[str, Callable[[Grid], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
}
