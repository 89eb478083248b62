"""The dialect of a table: the delimiter of its cells, and whether cells are in quotation marks.

A dialect is detected by trial: the right one divides all sampled rows into the same number of
cells.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, dropwhile, islice

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

N_SAMPLED = 1_000  # lines
N_SEARCHED = 100_000  # lines, to find the first cell that begins with a quotation mark
MIN_ROWS = 5  # fewer cells in quotation marks may be a coincidence
MIN_SHARE = 0.8  # share of rows, all cells of which begin and end with a mark, in a quoted table
MAX_CELL_CHARACTERS = 2**24  # the maximum length of a line in bytes
DELIMITERS = {",": "comma", ";": "semicolon", "|": "vertical bar", "\t": "tab"}

# The first line that Excel reads as the delimiter of the rest.
_DIRECTIVE = re.compile(r'"?sep=(?P<delimiter>[,;|\t])"?', re.IGNORECASE)
_BEGINS_WITH_MARK = re.compile(r'(^|\t)"')
_CELL = re.compile(r'(?P<cell>"(?:[^"]|"")*"|[^"\t\n]*)(?P<end>[\t\n])')
_MARK_AFTER_SPACE = re.compile(' +"')
_SURROUNDED = re.compile(r'"[^\t]*"(\t"[^\t]*")+')

Cells = list[str]


class QuotingError(Exception):
    """A row is not quoted by RFC 4180.

    Attributes:
        line: The number of its last line.
    """

    def __init__(self, line: int, reason: str) -> None:
        """Create the error with the number of a line, and the reason for the message."""
        super().__init__(reason)
        self.line = line


def split_quoted(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, Cells]]:
    """Yield the number of the last line of each row, and its cells by RFC 4180.

    Args:
        lines: The lines of a table, without line ends.
        delimiter: The sign between cells.

    Raises:
        QuotingError: A row is not quoted by RFC 4180.
    """
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        # A carriage return in a cell gives a hint for programmers.
        reason = str(error).partition(" - do you need")[0]
        raise QuotingError(rows.line_num, reason) from None


def directive(line: str) -> str | None:
    """Return the delimiter that a first line such as "sep=;" declares, or None."""
    match = _DIRECTIVE.fullmatch(line)
    return match["delimiter"] if match else None


def detect_delimiter(lines: Iterable[str], delimiters: Sequence[str], where: str) -> str:
    """Detect the delimiter that divides all sampled rows into the same number of cells.

    If none does, the one that does so for the largest number of first rows is returned. Reading the
    text then reports the first row that differs.

    Args:
        where: What error messages call the text.

    Raises:
        UserError: Several delimiters do, or none separates the first row.
    """
    sample = list(islice(lines, N_SAMPLED))
    if sample:
        declared = directive(sample[0])
        if declared in delimiters:
            return str(declared)
    # Usually, only one delimiter cuts all rows into the same number of cells.
    n_even = {delimiter: _count_even_rows(sample, delimiter) for delimiter in delimiters}
    max_even = max(n_even.values())
    if max_even == 0:
        names = ", ".join(DELIMITERS[delimiter] for delimiter in delimiters)
        raise UserError(
            f"{where} has one column: its first row has no delimiter ({names}); pass a file with "
            "one column per language"
        )
    best = [delimiter for delimiter in delimiters if n_even[delimiter] == max_even]
    if len(best) > 1:
        names = " and at ".join(f"{delimiter!r}" for delimiter in best)
        raise UserError(
            f"{where} can be split at {names}; pass --delimiter to choose one, as in --delimiter "
            f"'{best[-1]}'"
        )
    return best[0]


def check_marks(rows: Sequence[Cells], where: str) -> None:
    """Refuse CSV such as `"a", "b"`: by RFC 4180, marks after a space are part of the text.

    Args:
        where: What error messages call the text.

    Raises:
        UserError: Nearly all rows have a cell that begins with a space and a quotation mark.
    """
    found = []  # a cell of each such row
    for row in rows:
        marked = [cell for cell in row if _MARK_AFTER_SPACE.match(cell)]
        if marked:
            found.append(marked[0])
    if len(found) >= MIN_ROWS and len(found) > MIN_SHARE * len(rows):
        raise UserError(
            f"{where} has spaces before quotation marks (cell {quote(found[0])}), so that the "
            "marks would be read as text; remove these spaces"
        )


def _count_even_rows(sample: Sequence[str], delimiter: str) -> float:
    """Return the number of first rows that have the same number of cells; infinite for all rows.

    Args:
        sample: The first lines of a table.
    """
    width = 0  # number of cells of the first row
    n_rows = 0
    try:
        for _, row in split_quoted(sample, delimiter):
            if not row:
                continue  # a blank line
            width = width or len(row)
            if len(row) != width or width == 1:
                return n_rows
            n_rows += 1
    except QuotingError as error:
        # A cell of several lines may be cut at the end of the sample.
        is_cut = error.line == len(sample) == N_SAMPLED
        return float("inf") if is_cut and n_rows > N_SAMPLED / 2 else n_rows
    return float("inf") if n_rows else 0


def detect_quoting(lines: Iterable[str], where: str) -> bool:
    """Detect whether cells of tab-separated columns are in quotation marks, as in CSV.

    They are if the sampled rows, read as CSV, have the same number of cells, and one of:

    - Read otherwise, they have different numbers of cells.
    - All cells of a column are in marks.
    - Marks within a cell are doubled.
    - The cells in marks are exactly those with a comma, as Excel writes them.

    Text with inch signs, with opening marks only, or with some cells that are quotations has none
    of these.

    Args:
        where: What error messages call the text.

    Raises:
        UserError: Nearly all cells are in quotation marks, but not by the rules of CSV.
    """
    # Until a cell begins with a mark, both readings are the same, so the sample begins there.
    searched = islice(lines, N_SEARCHED)
    rest = dropwhile(lambda line: not _BEGINS_WITH_MARK.search(line), searched)
    sample = [line for line in islice(rest, N_SAMPLED) if line]
    if not sample:
        return False
    rows, broken_line = _rows_in_marks(sample)
    if broken_line is not None:
        # The rows are not CSV. They are text with marks, unless nearly all cells are in marks.
        n_surrounded = sum(_SURROUNDED.fullmatch(line) is not None for line in sample)
        if len(sample) >= MIN_ROWS and n_surrounded > MIN_SHARE * len(sample):
            raise UserError(
                f"{where} has quoted cells that are not valid CSV: a quotation mark in a cell is "
                f"not doubled (row {quote(broken_line)}); correct it, or pass --unquoted to read "
                "quotation marks as text"
            )
        return False
    widths = {len(row) for row in rows}
    if len(widths) != 1 or widths == {1}:
        return False
    # Tabs or line ends within cells can only be read as CSV.
    unquoted_widths = {line.count("\t") for line in sample}
    if len(unquoted_widths) > 1:
        return True
    return len(rows) == len(sample) and _is_written_in_marks(rows)


def _rows_in_marks(sample: Sequence[str]) -> tuple[list[Cells], str | None]:
    """Divide a sample into cells that have no mark, or are in marks with doubled ones within.

    Returns:
        The cells of each row, with their marks, and the first line that cannot be divided, or None.
    """
    text = "\n".join(sample) + "\n"
    rows: list[Cells] = [[]]
    position = 0
    while position < len(text):
        cell = _CELL.match(text, position)
        if cell is None:
            n_lines = text.count("\n", 0, position)
            is_open = text.count('"', position) % 2 == 1
            if is_open and len(sample) == N_SAMPLED and n_lines > N_SAMPLED / 2:
                return rows[:-1], None  # the sample ends in a cell of several lines
            return rows[:-1], sample[n_lines]
        rows[-1].append(cell["cell"])
        if cell["end"] == "\n":
            rows.append([])
        position = cell.end()
    return rows[:-1], None


def _is_written_in_marks(rows: Sequence[Cells]) -> bool:
    """Return whether a program wrote rows by one of the rules of `detect_quoting`."""
    in_marks = []
    with_comma = []
    for cell in chain.from_iterable(rows):
        if cell.startswith('"'):
            in_marks.append(cell)
            if '""' in cell[1:-1]:
                return True
        if "," in cell:
            with_comma.append(cell)
    # The other rules could hold by chance in a few rows.
    if len(rows) < MIN_ROWS:
        return False
    for column in zip(*rows, strict=True):
        cells = [cell for cell in column if cell]
        if cells and all(cell.startswith('"') for cell in cells):
            return True
    return in_marks == with_comma and len(in_marks) >= MIN_ROWS
