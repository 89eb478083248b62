"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from nmtkit.sources.dialect import (
    DELIMITERS,
    QuotingError,
    check_marks,
    detect_delimiter,
    detect_quoting,
    directive,
    split_quoted,
)
from nmtkit.sources.sides import (
    Positions,
    Variants,
    are_swapped,
    choose_columns,
    find_sides,
    is_side,
)
from nmtkit.sources.source import DETECTED, Row, Source, detect_languages, expand_path
from nmtkit.sources.table_columns import N_COMPARED_ROWS, check_names, find_columns
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.sources.text_formats import MIN_LINES, MIN_SHARE, first_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import counted, quote, shorten

Delimiter = Literal[",", ";", "|"]  # of CSV
MAX_ROW_LINES = 5  # more lines in a row are rarely meant
IGNORED = "ignored"  # a column that has the name of a side, and is not one

NumberedCells = tuple[int, list[str]]  # the number of the last line of a row, and its cells


class _Table(Source):
    """A file of rows with the same number of cells, one of which is the source, one the target."""

    # The names of all columns, such as ["id", "en", "de"]. Those of the two languages are read.
    columns: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
    header: bool = False  # line 1 has the names of columns

    @classmethod
    def from_file(
        cls,
        path: str,
        src: Language,
        tgt: Language,
        columns: Sequence[str],
        dialect: Mapping[str, Any] = DETECTED,
    ) -> Source:
        """Return the source of a user's table, with the columns that `find_columns` finds.

        Args:
            columns: The columns that the user named; empty to detect them.
            dialect: Keys of the dialect; empty to detect them.
        """
        langs = (src, tgt)
        dialect = dialect or cls._detect_dialect(path)
        rows = cls._first_rows(path, dialect, 1 + N_COMPARED_ROWS)
        detected = find_columns(rows or [[]], columns, langs, f"--{cls.key} {path}")
        # In the recipe, only the two sides have the name of a side.
        names = [IGNORED if is_side(name, langs) else name for name in detected.names]
        for position, lang in zip(detected.sides, langs, strict=True):
            names[position] = str(lang)
        keys = {cls.key: path, **dialect, "columns": names, "header": detected.has_header}
        return cls.model_validate(keys)

    @classmethod
    def names_in(cls, path: str, dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the cells of the first line."""
        rows = cls._first_rows(path, dialect or cls._detect_dialect(path), 1)
        return rows[0] if rows else []

    @classmethod
    def check_columns(
        cls, path: str, columns: Sequence[str], dialect: Mapping[str, Any] = DETECTED
    ) -> None:
        """Refuse names of columns that a user's file does not have. See `Source.check_columns`."""
        check_names(cls.names_in(path, dialect), columns, f"--{cls.key} {path}")

    @classmethod
    def _first_rows(cls, path: str, dialect: Mapping[str, Any], n_rows: int) -> list[list[str]]:
        # Reading cells needs no names of columns, but the class requires some.
        table = cls.model_validate({cls.key: path, **dialect, "columns": ("", "")})
        rows = table._cells(TextFile(expand_path(path)))
        return [cells for _, cells in islice(rows, n_rows)]

    @classmethod
    def languages_of(cls, names: Sequence[str]) -> Sequence[Language]:
        """Return the languages that the names of all columns show."""
        return detect_languages(names)

    @classmethod
    def sample_in(
        cls, path: str, _names: Sequence[str], dialect: Mapping[str, Any] = DETECTED
    ) -> list[Sequence[str]]:
        """Return the first rows with the number of cells of line 1; see `Source.sample_in`."""
        dialect = dialect or cls._detect_dialect(path)
        first, *rows = cls._first_rows(path, dialect, 1 + N_COMPARED_ROWS)
        return [first, *(row for row in rows if len(row) == len(first))]

    def reversed(self) -> Source:
        """Return the source itself: its columns are named after the languages."""
        return self

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the columns and the header."""
        kind = f"{self.key} with header" if self.header else self.key
        return [kind, *hashes, *self.columns]

    def check(self, src: Language, tgt: Language) -> None:
        """Check that the columns name both languages.

        Raises:
            ValueError: They do not.
        """
        try:
            self._sides((src, tgt), self.paths()[0])
        except UserError as error:
            raise ValueError(str(error)) from None

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the two columns of all rows but the header; see `Source.rows`."""
        [text] = texts
        src, tgt = self._sides(variants.langs, text)
        is_first = True
        previous = 0  # the last line of the previous row
        n_long = 0  # rows of many lines
        for number, cells in self._cells(text):
            if number - previous > MAX_ROW_LINES:
                n_long += 1
                if n_long == 1:
                    first_long = f"lines {previous + 1:,} to {number:,}"
            previous = number
            if len(cells) != len(self.columns):
                n_columns = counted(len(cells), "column")
                raise UserError(
                    f"{text}, line {number:,}: {n_columns}, but `columns` lists "
                    f"{len(self.columns):,} ({', '.join(self.columns)}); correct one of them"
                )
            if is_first:
                # The recipe may have been written for another version of the file.
                self._check_header(cells, (src, tgt), text, variants.langs)
            blank = [
                lang
                for side, lang in zip((src, tgt), variants.langs, strict=True)
                if not cells[side].strip()
            ]
            if blank and not (is_first and self.header):
                variants.skipped[f"with a blank {blank[0]}"] += 1
            elif not (is_first and self.header):
                yield cells[src], cells[tgt]
            is_first = False
        if n_long:
            variants.suspicions.append(
                f"{counted(n_long, 'cell')} of more than {MAX_ROW_LINES} lines (the first: "
                f"{first_long}), so rows may have been joined; look there for a quotation mark "
                "that is not closed"
            )

    def _sides(self, langs: tuple[Language, Language], text: object) -> Positions:
        src, tgt = langs
        remedy = f"call one column {src} and one {tgt}"
        return choose_columns(self.columns, langs, f"the list of columns of {text}", remedy)

    def _check_header(
        self,
        cells: Sequence[str],
        sides: Positions,
        text: TextFile,
        langs: tuple[Language, Language],
    ) -> None:
        """Refuse a line 1 that names the columns, unless it is a header that agrees with them.

        Args:
            cells: The cells of line 1.
            sides: The positions of source and target in the recipe.
            langs: The languages of source and target.
        """
        is_header = all(find_sides(cells, langs))
        is_swapped = are_swapped([cells[side] for side in sides], langs)
        if (is_header and not self.header) or (self.header and is_swapped):
            names = ", ".join(shorten(cell) for cell in cells)
            raise UserError(
                f"{text}, line 1 is a header ({names}); in the recipe, set header = true and "
                f"columns that match it, not {', '.join(self.columns)}"
            )

    def _header_description(self) -> str:
        return "with a header" if self.header else "without a header"

    @abstractmethod
    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        """Yield the rows of a file."""

    @classmethod
    @abstractmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        """Detect the keys of the dialect in the lines of a file."""


def _read_rows(text: TextFile, delimiter: str, *, quoted: bool) -> Iterator[NumberedCells]:
    """Yield the rows of a file; line feeds in quoted cells become spaces.

    A first line such as "sep=;" declares the delimiter for Excel, and is not a row.

    Args:
        delimiter: The sign between cells.
        quoted: Whether cells may be in quotation marks.
    """
    lines = read_lines(text)
    first = next(lines, None)
    if first is None:
        return
    # A declaration is not counted by the reader of the rows below it.
    n_skipped = 0
    declared = directive(first)
    if declared is None:
        lines = chain([first], lines)
    elif declared == delimiter:
        n_skipped = 1
    else:
        raise UserError(
            f"{text}, line 1 declares the delimiter {quote(declared)}, but the recipe has "
            f"{quote(delimiter)}; correct the recipe, or remove this line"
        )
    if not quoted:
        # Without quotation marks, a row is a line.
        for number, line in enumerate(lines, 1 + n_skipped):
            yield number, line.split(delimiter)
        return
    try:
        for number, cells in split_quoted(lines, delimiter):
            joined = [cell.replace("\n", " ") for cell in cells]
            yield number + n_skipped, joined or [""]
    except QuotingError as error:
        raise UserError(
            f"{text}, line {error.line + n_skipped:,}: {error}; quote cells as in RFC 4180"
        ) from None


class Tsv(_Table):
    """A file of columns with tabs between them."""

    key = "tsv"
    path_keys = ("tsv",)
    title = "tab-separated columns"
    has_option = True
    to_plain = "`cut -f 1 FILE > NEW_FILE` extracts column 1"

    tsv: str
    quoted: bool = False  # as in CSV: cells may be in quotation marks, and hold tabs and line ends

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether nearly all lines have the same number of tabs.

        Args:
            head: The first lines of a text.
        """
        lines = first_lines(head)
        counts = Counter(line.count("\t") for line in lines)
        n_tabs, n_lines = counts.most_common(1)[0] if lines else (0, 0)
        # Of a few lines, one tab is not enough: it may follow the number of a line.
        if n_tabs > 1 and n_lines == len(lines) > 1:
            return True
        return n_tabs > 0 and n_lines >= MIN_LINES and n_lines > MIN_SHARE * len(lines)

    @classmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        return {"quoted": detect_quoting(read_lines(TextFile(expand_path(path))), path)}

    def description(self) -> str:
        """Describe the format, with header and quotation marks."""
        cells = "in quotation marks, as in CSV" if self.quoted else "read as they are"
        return f"{self.title} {self._header_description()}, cells {cells}"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text."""
        identity = super().identity(hashes)
        if self.quoted:
            identity.append("quoted")
        return identity

    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        return _read_rows(text, "\t", quoted=self.quoted)


class Csv(_Table):
    """A file of columns with commas, semicolons or vertical bars between them (RFC 4180)."""

    key = "csv"
    path_keys = ("csv",)
    title = "CSV"
    has_option = True
    to_plain = "copy one column to a text file"

    csv: str
    delimiter: Delimiter = ","

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether nearly all lines have the same number of cells.

        Args:
            head: The first lines of a text.
        """
        lines = first_lines(head)
        # Any of the delimiters may separate the cells; few lines by chance have the same width.
        for delimiter in get_args(Delimiter):
            widths = Counter(_width(line, delimiter) for line in lines)
            width, n_lines = widths.most_common(1)[0] if widths else (0, 0)
            if width > 1 and n_lines >= MIN_LINES and n_lines > MIN_SHARE * len(lines):
                return True
        return False

    @classmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        delimiters = get_args(Delimiter)
        lines = read_lines(TextFile(expand_path(path)))
        return {"delimiter": detect_delimiter(lines, delimiters, path)}

    @classmethod
    def _first_rows(cls, path: str, dialect: Mapping[str, Any], n_rows: int) -> list[list[str]]:
        rows = super()._first_rows(path, dialect, n_rows)
        check_marks(rows, path)
        return rows

    def description(self) -> str:
        """Describe the format, with header and delimiter."""
        delimiter = DELIMITERS[self.delimiter]
        return f"{self.title} {self._header_description()}, a {delimiter} between cells"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text."""
        identity = super().identity(hashes)
        # Two delimiters can divide the same file into the same columns of different text.
        if self.delimiter != ",":
            identity.append(f"delimiter {self.delimiter}")
        return identity

    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        return _read_rows(text, self.delimiter, quoted=True)


def _width(line: str, delimiter: str) -> int:
    """Return the number of cells of a line, or 0 if it is not a row of a CSV file."""
    without_numbers = re.sub(r"(?<=\d),(?=\d)", "", line)  # 1,5 is a number
    try:
        [(_, cells)] = split_quoted([without_numbers], delimiter)
    except (QuotingError, ValueError):
        return 0
    # In plain text, a space follows a comma.
    is_prose = any(cell.startswith(" ") for cell in cells[1:])
    return 0 if is_prose else len(cells)
