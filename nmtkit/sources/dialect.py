"""The dialect of a table: the sign between its cells, and whether cells are in quotation marks.

A dialect is detected from its columns: the right one gives all sampled rows the same number of
cells.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, islice

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

N_SAMPLED = 1_000  # lines
N_SEARCHED = 100_000  # lines, for the first cell that begins with a quotation mark
MIN_ROWS = 5  # with fewer, cells that are all in quotation marks are no evidence
MIN_SHARE = 0.8  # of the rows of a table in which all cells begin and end with a mark
MAX_CELL_CHARACTERS = 2**24  # the maximum length of a line in bytes
DELIMITERS = {",": "comma", ";": "semicolon", "|": "vertical bar", "\t": "tab"}

# The first line that Excel reads as the delimiter of the rest.
_DIRECTIVE = re.compile(r'"?sep=(?P<delimiter>[,;|\t])"?', re.IGNORECASE)
_BEGINS_WITH_MARK = re.compile(r'(^|\t)"')
_CELL = re.compile(r'(?P<cell>"(?:[^"]|"")*"|[^"\t\n]*)(?P<end>[\t\n])')
_SURROUNDED = re.compile(r'"[^\t]*"(\t"[^\t]*")+')

Cells = list[str]


class QuotingError(Exception):
    """A row is not quoted by RFC 4180."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def split_quoted(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, Cells]]:
    """Yield the cells of each row by RFC 4180, and the number of its last line.

    Raises:
        QuotingError: A row is not quoted by RFC 4180.
    """
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise QuotingError(rows.line_num, str(error)) from None


def directive(line: str) -> str | None:
    """Return the delimiter that a first line such as "sep=;" declares, or None."""
    found = _DIRECTIVE.fullmatch(line)
    return found["delimiter"] if found else None


def detect_delimiter(lines: Iterable[str], delimiters: Sequence[str], where: str) -> str:
    """Return the delimiter that gives all sampled rows the same number of cells, at least two.

    If none does, it is the one that does for the most rows from the first, so that reading the
    text finds the row that differs.

    Args:
        lines: The lines of the text.
        delimiters: The delimiters to choose from.
        where: What error messages call the text.

    Raises:
        UserError: Several delimiters do, or none separates the first row.
    """
    sample = list(islice(lines, N_SAMPLED))
    if sample and (declared := directive(sample[0])) in delimiters:
        return str(declared)
    n_even = {delimiter: _count_even_rows(sample, delimiter) for delimiter in delimiters}
    most = max(n_even.values())
    best = [delimiter for delimiter in delimiters if n_even[delimiter] == most]
    if most == 0:
        seen = ", ".join(DELIMITERS[delimiter] for delimiter in delimiters)
        raise UserError(
            f"{where} has one column: its first row has no delimiter ({seen}); give a file with a "
            "column for each language"
        )
    if len(best) > 1:
        names = " and at ".join(f"{delimiter!r}" for delimiter in best)
        raise UserError(
            f"{where} can be cut at {names}; pass --delimiter to choose one, as in "
            f"--delimiter '{best[-1]}'"
        )
    return best[0]


def _count_even_rows(sample: Sequence[str], delimiter: str) -> float:
    """Return the number of first rows that have equally many cells; infinite for all rows."""
    width = n_rows = 0
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
    """Return whether cells of tab-separated columns are in quotation marks, as in CSV.

    They are if the sampled rows can be read so, with the same number of cells in all, and they
    cannot be read otherwise, or a whole column is in marks, or marks within a cell are doubled, or
    exactly the cells with a comma are in marks (Excel). Text with inch signs, with opening marks
    only, or with some cells that are quotations fulfills none of these.

    Args:
        lines: The lines of the text.
        where: What error messages call the text.

    Raises:
        UserError: Nearly all cells are in quotation marks, but not by the rules of CSV.
    """
    # Until a cell begins with a mark, both readings are the same.
    searched = islice(lines, N_SEARCHED)
    rest = dropwhile(lambda line: not _BEGINS_WITH_MARK.search(line), searched)
    sample = [line for line in islice(rest, N_SAMPLED) if line]
    if not sample:
        return False
    rows, broken_line = _rows_in_marks(sample)
    if broken_line is not None:
        n_surrounded = sum(_SURROUNDED.fullmatch(line) is not None for line in sample)
        if len(sample) >= MIN_ROWS and n_surrounded > MIN_SHARE * len(sample):
            raise UserError(
                f"{where} has its cells in quotation marks, but not as CSV has them: a mark in a "
                f"cell is not doubled (row {quote(broken_line)}); correct it, or pass --unquoted "
                "to read the marks as text"
            )
        return False
    if len({len(row) for row in rows}) != 1 or len(rows[0]) == 1:
        return False
    if len({line.count("\t") for line in sample}) > 1:
        return True
    return len(rows) == len(sample) and _is_written_in_marks(rows)


def _rows_in_marks(sample: Sequence[str]) -> tuple[list[Cells], str | None]:
    """Return the cells of each row, with their marks, and the line in which they end too early.

    A cell is in marks, with those within it doubled, or has no mark.
    """
    text = "".join(f"{line}\n" for line in sample)
    rows: list[Cells] = [[]]
    position = 0
    while position < len(text):
        found = _CELL.match(text, position)
        if found is None:
            n_lines = text.count("\n", 0, position)
            is_open = text.count('"', position) % 2 == 1
            if is_open and len(sample) == N_SAMPLED and n_lines > N_SAMPLED / 2:
                return rows[:-1], None  # the sample ends in a cell of several lines
            return rows[:-1], sample[n_lines]
        rows[-1].append(found["cell"])
        if found["end"] == "\n":
            rows.append([])
        position = found.end()
    return rows[:-1], None


def _is_written_in_marks(rows: Sequence[Cells]) -> bool:
    """Return whether a program that quotes by some rule wrote rows of lines without tabs."""
    in_marks = [cell for row in rows for cell in row if cell.startswith('"')]
    if any('""' in cell[1:-1] for cell in in_marks):
        return True
    if len(rows) < MIN_ROWS:
        return False
    for column in zip(*rows, strict=True):
        cells = [cell for cell in column if cell]
        if cells and all(cell.startswith('"') for cell in cells):
            return True
    with_comma = [cell for row in rows for cell in row if "," in cell]
    return in_marks == with_comma and len(in_marks) >= MIN_ROWS
