"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from types import new_class
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from nmtkit.sources.dialect import (
    DELIMITERS,
    QuotingError,
    detect_delimiter,
    detect_quoting,
    directive,
    split_quoted,
)
from nmtkit.sources.formats import MIN_LINES, MIN_SHARE, first_lines
from nmtkit.sources.sides import are_swapped, find_sides, is_side
from nmtkit.sources.source import Row, Source, own_path
from nmtkit.sources.table_columns import N_COMPARED_ROWS, check_names, find_columns
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import Positions, Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import quote, shorten

Delimiter = Literal[",", ";", "|"]  # of CSV
IGNORED = "ignored"  # a column that has the name of a side, and is not one

NumberedCells = tuple[int, list[str]]  # the number of the last line of a row, and its cells


class _Table(Source):
    # The names of all columns, such as ["id", "en", "de"]: those of the two languages are read.
    columns: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
    header: bool = False  # line 1 has the names of columns
    chosen_dialect: ClassVar[Mapping[str, Any]] = {}  # keys that are not detected

    @classmethod
    def from_file(cls, path: str, src: Language, tgt: Language, columns: Sequence[str]) -> Source:
        langs = (src, tgt)
        rows = cls._first_rows(path, 1 + N_COMPARED_ROWS)
        found = find_columns(rows or [[]], columns, langs, f"--{cls.key} {path}")
        # In the recipe, only the two sides have the name of a side.
        names = [IGNORED if is_side(name, langs) else name for name in found.names]
        for position, lang in zip(found.sides, langs, strict=True):
            names[position] = str(lang)
        keys = {
            cls.key: path,
            **cls._dialect(path),
            "columns": names,
            "header": found.has_header,
        }
        return cls.model_validate(keys)

    @classmethod
    def names_in(cls, path: str) -> Sequence[str]:
        """Return the cells of the first line."""
        rows = cls._first_rows(path, 1)
        return rows[0] if rows else []

    @classmethod
    def check_columns(cls, path: str, columns: Sequence[str]) -> None:
        check_names(cls.names_in(path), columns, f"--{cls.key} {path}")

    @classmethod
    def _first_rows(cls, path: str, n_rows: int) -> list[list[str]]:
        unnamed = {cls.key: path, **cls._dialect(path), "columns": ("", "")}
        rows = cls.model_validate(unnamed)._cells(TextFile(own_path(path)))
        return [cells for _, cells in islice(rows, n_rows)]

    def identity(self, hashes: Sequence[str]) -> list[str]:
        kind = f"{self.key} with header" if self.header else self.key
        return [kind, *hashes, *self.columns]

    def check(self, src: Language, tgt: Language) -> None:
        try:
            self._sides(Variants(src, tgt), self._paths()[0])
        except UserError as error:
            raise ValueError(str(error)) from None

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        [text] = texts
        src, tgt = self._sides(variants, text)
        is_first = True
        for number, cells in self._cells(text):
            if len(cells) != len(self.columns):
                raise UserError(
                    f"{text}, line {number:,}: {len(cells):,} columns, but the recipe names "
                    f"{len(self.columns):,} ({', '.join(self.columns)}); correct one of them"
                )
            if is_first:
                self._check_header(cells, (src, tgt), text, variants)
            if not (is_first and self.header):
                yield cells[src], cells[tgt]
            is_first = False

    def _sides(self, variants: Variants, text: object) -> Positions:
        src, tgt = variants.langs
        remedy = f"call one column {src} and one {tgt}"
        return variants.choose_columns(self.columns, f"the list of columns of {text}", remedy)

    def _check_header(
        self, cells: Sequence[str], sides: Positions, text: TextFile, variants: Variants
    ) -> None:
        """Refuse a line 1 that names the columns, unless it is a header that agrees with them."""
        is_header = all(find_sides(cells, variants.langs))
        is_swapped = are_swapped([cells[side] for side in sides], variants.langs)
        if (is_header and not self.header) or (self.header and is_swapped):
            names = ", ".join(shorten(cell) for cell in cells)
            raise UserError(
                f"{text}, line 1 names the columns: {names}; the recipe must have header = true, "
                f"and columns that agree, not {', '.join(self.columns)}"
            )

    def _header_description(self) -> str:
        return "with a header" if self.header else "without a header"

    @abstractmethod
    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        """Yield the rows of a file."""

    @classmethod
    def with_dialect(cls, **keys: Any) -> "type[_Table]":
        """Return this kind with keys of the dialect that are not detected in its files."""
        kind: type[_Table] = new_class(cls.__name__, (cls,))
        kind.chosen_dialect = keys
        return kind

    @classmethod
    def _dialect(cls, path: str) -> Mapping[str, Any]:
        """Return the keys of the dialect of a file."""
        return cls.chosen_dialect or cls._detect_dialect(path)

    @classmethod
    @abstractmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        """Detect the dialect in the lines of a file."""


def _read_rows(text: TextFile, delimiter: str, *, quoted: bool) -> Iterator[NumberedCells]:
    """Yield the rows of a file; line feeds in quoted cells become spaces.

    A first line such as "sep=;", which declares the delimiter for Excel, is not a row.

    Args:
        text: The file.
        delimiter: The sign between cells.
        quoted: Whether cells may be in quotation marks.
    """
    lines = read_lines(text)
    first = next(lines, None)
    if first is None:
        return
    n_skipped = 0
    declared = directive(first)
    if declared is None:
        lines = chain([first], lines)
    elif declared == delimiter:
        n_skipped = 1
    else:
        raise UserError(
            f"{text}, line 1 declares the delimiter {quote(declared)}, and the recipe has "
            f"{quote(delimiter)}; correct the recipe, or remove this line"
        )
    if not quoted:
        for number, line in enumerate(lines, 1 + n_skipped):
            yield number, line.split(delimiter)
        return
    try:
        for number, cells in split_quoted(lines, delimiter):
            joined = [cell.replace("\n", " ") for cell in cells]
            yield number + n_skipped, joined or [""]
    except QuotingError as error:
        raise UserError(
            f"{text}, line {error.line + n_skipped:,}: {error}; quote by RFC 4180"
        ) from None


class Tsv(_Table):
    key = "tsv"
    path_keys = ("tsv",)
    title = "tab-separated columns"

    tsv: str
    quoted: bool = False  # as in CSV: cells may be in quotation marks, and hold tabs and line ends

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether nearly all lines have the same number of tabs.

        Few lines are enough if all have several: one may stand behind the number of a line.
        """
        lines = first_lines(head)
        counts = Counter(line.count("\t") for line in lines)
        n_tabs, n_lines = counts.most_common(1)[0] if lines else (0, 0)
        if n_tabs > 1 and n_lines == len(lines) > 1:
            return True
        return n_tabs > 0 and n_lines >= MIN_LINES and n_lines > MIN_SHARE * len(lines)

    @classmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        return {"quoted": detect_quoting(read_lines(TextFile(own_path(path))), path)}

    def description(self) -> str:
        cells = "in quotation marks, as in CSV" if self.quoted else "read as they are"
        return f"{self.title} {self._header_description()}, cells {cells}"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        return [*super().identity(hashes), *(["quoted"] if self.quoted else [])]

    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        return _read_rows(text, "\t", quoted=self.quoted)


class Csv(_Table):
    """A file of columns with commas, semicolons or vertical bars between them (RFC 4180)."""

    key = "csv"
    path_keys = ("csv",)
    title = "CSV"

    csv: str
    delimiter: Delimiter = ","

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether nearly all lines have equally many cells, cut where no space follows.

        In plain text, a space follows a comma.
        """
        lines = first_lines(head)
        for delimiter in get_args(Delimiter):
            widths = Counter(_width(line, delimiter) for line in lines)
            width, n_lines = widths.most_common(1)[0] if widths else (0, 0)
            if width > 1 and n_lines >= MIN_LINES and n_lines > MIN_SHARE * len(lines):
                return True
        return False

    @classmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        delimiters = get_args(Delimiter)
        lines = read_lines(TextFile(own_path(path)))
        return {"delimiter": detect_delimiter(lines, delimiters, path)}

    def description(self) -> str:
        delimiter = DELIMITERS[self.delimiter]
        return f"{self.title} {self._header_description()}, a {delimiter} between cells"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        # Two delimiters can give the same columns of other text.
        other = [] if self.delimiter == "," else [f"delimiter {self.delimiter}"]
        return [*super().identity(hashes), *other]

    def _cells(self, text: TextFile) -> Iterator[NumberedCells]:
        return _read_rows(text, self.delimiter, quoted=True)


def _width(line: str, delimiter: str) -> int:
    """Return the number of cells of a line, or 0 if it is not a row of a CSV file."""
    without_numbers = re.sub(r"(?<=\d),(?=\d)", "", line)  # 1,5 is a number
    try:
        [(_, cells)] = split_quoted([without_numbers], delimiter)
    except (QuotingError, ValueError):
        return 0
    return 0 if any(cell.startswith(" ") for cell in cells[1:]) else len(cells)
