"""A table, for a terminal, Markdown, LaTeX and CSV.

Pages have a macro of their own for it, in parts.html.j2.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup
from rich.cells import cell_len
from rich.table import Table

from nmtkit.utils.text import visible

Row = tuple[str, ...]

# Characters of a word that a terminal does not break: names of recipes are shorter, paths longer.
MAX_WORD = 24
MIN_WORD = 4  # minimum characters of a part of a broken word
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FROM_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
SCIENTIFIC = re.compile("([0-9.]+) × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")  # as `scientific` writes it


class Link(str):
    """A cell; on a page, a link to the element with the id `target`."""

    target: str

    def __new__(cls, text: str, target: str) -> "Link":
        """Create a cell from its text and the id of the element it links to."""
        link = super().__new__(cls, text)
        link.target = target
        return link

    def __html__(self) -> Markup:
        """Return the link as HTML, for templates."""
        # `Markup.format` escapes its arguments.
        return Markup('<a href="#{}">{}</a>').format(self.target, visible(str(self)))


class MarkedText(str):
    """A cell with marked words: in brackets, on a page in colour."""

    pieces: Sequence[tuple[str, bool]]

    def __new__(cls, pieces: Sequence[tuple[str, bool]]) -> "MarkedText":
        """Create a cell from pairs of a piece of text, in order, and whether it is marked."""
        texts = []
        for text, is_marked in pieces:
            texts.append(f"[{text}]" if is_marked else text)
        marked = super().__new__(cls, " ".join(texts))
        marked.pieces = pieces
        return marked

    def __html__(self) -> Markup:
        """Return the cell as HTML, for templates."""
        texts = []
        for text, is_marked in self.pieces:
            markup = Markup("<mark>{}</mark>") if is_marked else Markup("{}")
            texts.append(markup.format(visible(text)))
        return Markup(" ").join(texts)


@dataclass(frozen=True)
class Grid:
    """A table whose rows form groups; a line or a space separates groups of several rows."""

    title: str  # "" for none
    columns: Row  # heads; all of them "" for none
    n_labels: int  # number of columns of text, at the left; the others hold numbers
    groups: Sequence[Sequence[Row]]  # a first cell that repeats the one above is not printed
    has_texts: bool = False  # a narrow page shows the last label, a sentence, below the others
    data: "Grid | None" = None  # the figures with one value per cell, for CSV

    @classmethod
    def of(cls, title: str, columns: Sequence[str], rows: Sequence[Row], n_labels: int) -> "Grid":
        """Create a table without groups.

        Args:
            title: Title, or "".
            n_labels: Number of first columns that hold text.
        """
        return cls(title, tuple(columns), n_labels, [[row] for row in rows])

    def without(self, *columns: int) -> "Grid":
        """Return the table without some columns."""
        kept = []
        n_labels = 0
        for column in range(len(self.columns)):
            if column not in columns:
                kept.append(column)
                if column < self.n_labels:
                    n_labels += 1
        groups = []
        for group in self.groups:
            groups.append([_cells(row, kept) for row in group])
        names = _cells(self.columns, kept)
        return replace(self, columns=names, n_labels=n_labels, groups=groups)

    def filled(self) -> "Grid":
        """Return the table without the columns of numbers whose cells are all empty."""
        # Labels stay: a column of them may be empty in all rows and still group them.
        empty = set(range(self.n_labels, len(self.columns)))
        for group in self.groups:
            for row in group:
                for column in list(empty):
                    if row[column]:
                        empty.remove(column)
        return self.without(*empty)

    def rows(self) -> list[list[Row]]:
        """Return the groups as text for people.

        Invisible characters are named, and a first cell that repeats the one above is empty.
        """
        groups = []
        for group in self.groups:
            rows: list[Row] = []
            for number, row in enumerate(group):
                # The repeated cell is the name of the group.
                cells = list(map(_visible_cell, row))
                if number > 0 and row[0] == group[number - 1][0]:
                    cells[0] = ""
                rows.append(tuple(cells))
            groups.append(rows)
        return groups


def _cells(row: Row, columns: Sequence[int]) -> Row:
    """Return the cells of a row in some columns."""
    return tuple(row[column] for column in columns)


def _visible_cell(cell: str) -> str:
    """Name the invisible characters of a cell of one or more lines."""
    return "\n".join(map(visible, cell.split("\n")))


def as_rich(grid: Grid, max_width: int) -> Table:
    """Return the table for a terminal.

    Args:
        max_width: Number of columns of the terminal.
    """
    groups = grid.rows()
    rows = [grid.columns]
    for group in groups:
        rows += group
    widths = _column_widths(rows, max_width)
    table = Table(
        title=visible(grid.title) or None,
        title_justify="left",
        show_header=any(grid.columns),
        min_width=cell_len(grid.title) + 1,  # else a long title is folded
    )
    for number, name in enumerate(grid.columns):
        # Numbers are compared digit by digit, and stand at the right.
        justify = "left" if number < grid.n_labels else "right"
        table.add_column(
            _visible_cell(name),
            overflow="fold",
            justify=justify,  # type: ignore[arg-type]
            width=widths[number],
        )
    for group in groups:
        for row in group:
            table.add_row(*row)
        # A line after every single row would only be noise.
        if len(group) > 1:
            table.add_section()
    return table


def _column_widths(rows: Sequence[Row], max_width: int) -> list[int | None]:
    """Return the widths of the columns of a table that break few words.

    Args:
        rows: The rows, including the heads.
        max_width: Number of columns of the terminal.

    Returns:
        None for all columns, if they do not even fit with a few characters each.
    """
    widths = []
    longest_words = []
    for column in zip(*rows, strict=True):
        width = 0
        longest_word = 0
        for line in "\n".join(column).split("\n"):
            text = visible(line)
            width = max(width, cell_len(text))
            for word in text.split(" "):
                longest_word = max(longest_word, cell_len(word))
        widths.append(width)
        longest_words.append(longest_word)
    # Every column has a border and two spaces, and the table has one more border.
    available = max_width - 3 * len(widths) - 1

    # If the words do not fit side by side, the longest ones are broken.
    max_word = MAX_WORD
    min_widths = [min(length, max_word) for length in longest_words]
    while sum(min_widths) > available:
        if max_word <= MIN_WORD:
            return [None] * len(widths)
        max_word -= 1
        min_widths = [min(length, max_word) for length in longest_words]

    # Narrow the widest column that can be narrower, until the table fits; if words must be broken,
    # then after all columns have lines of single words.
    for least in (longest_words, min_widths):
        while sum(widths) > available:
            slack = [i for i, width in enumerate(widths) if width > least[i]]
            if not slack:
                break
            widest = max(slack, key=lambda i: widths[i])
            widths[widest] -= 1
    return list(widths)


def as_markdown(grid: Grid) -> str:
    """Return the table as Markdown."""
    lines = []
    if grid.title:
        lines += [f"**{markdown(grid.title)}**", ""]
    lines.append(_markdown_row(grid.columns))
    n_numbers = len(grid.columns) - grid.n_labels
    alignments = ["---"] * grid.n_labels + ["--:"] * n_numbers
    lines.append(f"|{'|'.join(alignments)}|")
    for group in grid.groups:
        lines += map(_markdown_row, group)
    return "\n".join(lines)


def _markdown_row(row: Row) -> str:
    """Return the line of a row."""
    return f"| {' | '.join(map(markdown, row))} |"


def markdown(text: str) -> str:
    """Escape text for Markdown; a link stays a link."""
    lines = []
    for line in text.split("\n"):
        # Brackets and angles could be links and HTML; a bar would end the cell.
        lines.append(re.sub(r"([\\|<>\[\]*_`&])", r"\\\1", visible(line)))
    escaped = "<br>".join(lines)
    return f"[{escaped}](#{text.target})" if isinstance(text, Link) else escaped


def as_latex(grid: Grid) -> str:
    """Return the table for a paper that uses the package booktabs."""
    from tabulate import tabulate  # slow, and most tables are for a terminal

    rows = []
    for group in grid.rows():
        for row in group:
            rows.append(list(map(_one_line, row)))
    if not rows:
        # tabulate would omit the columns, and LaTeX needs them for the heads.
        rows.append(["no rows"] + [""] * (len(grid.columns) - 1))
    heads = list(map(_one_line, grid.columns)) if any(grid.columns) else []
    n_numbers = len(grid.columns) - grid.n_labels
    sides = ["left"] * grid.n_labels + ["right"] * n_numbers
    # tabulate would reformat numbers, such as 1.10 to 1.1.
    table: str = tabulate(rows, heads, "latex_booktabs", colalign=sides, disable_numparse=True)
    # A bracket or star at the beginning of a row would be an argument of the \\ or rule before it.
    table = re.sub(r"(?m)^( *)([\[*])", r"\1{}\2", table).replace("±", r"$\pm$")
    table = SCIENTIFIC.sub(_latex_power, table)
    return f"% {visible(grid.title)}\n{table}" if grid.title else table


def _latex_power(number: re.Match[str]) -> str:
    """Return a number that `scientific` wrote, for LaTeX."""
    return rf"${number[1]}\times10^{{{number[2].translate(FROM_SUPERSCRIPTS)}}}$"


def as_csv(grid: Grid) -> str:
    """Return the table, or its data, for a spreadsheet: digits have no commas between them."""
    table = grid.data or grid
    # The csv module quotes cells with commas, quotes and line feeds.
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_csv_cell, table.columns))
    for group in table.groups:
        for row in group:
            writer.writerow(map(_csv_cell, row))
    return text.getvalue().removesuffix("\n")


def _csv_cell(cell: str) -> str:
    """Return a cell on one line; a number without commas."""
    # A spreadsheet reads 1,234 as two cells, or as text.
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", cell):
        return cell.replace(",", "")
    return _one_line(cell)


def _one_line(cell: str) -> str:
    """Return the lines of a cell as one."""
    return visible(cell.replace("\n", ", "))


WRITERS: dict[str, Callable[[Grid], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
}


# Numbers as people write them


def scientific(value: float, n_digits: int = 1) -> str:
    """Return a positive number such as 3.6 × 10¹².

    Args:
        n_digits: Digits behind the decimal point.
    """
    digits, _, power = f"{value:.{n_digits}e}".partition("e")
    return f"{digits} × 10{str(int(power)).translate(SUPERSCRIPTS)}"


def millions(number: float) -> str:
    """Return a number of parameters such as 65.1 M; small models have two decimals."""
    return f"{number / 1e6:.1f} M" if number >= 1e7 else f"{number / 1e6:.2f} M"


def data_cell(value: object) -> str:
    """Return a value for CSV: numbers with up to 6 digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
