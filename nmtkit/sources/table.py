"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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
from nmtkit.sources.sides import are_swapped, check_order, find_sides, is_side
from nmtkit.sources.source import Row, Source, own_path
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import Variants, listed
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import quote, shorten

Delimiter = Literal[",", ";", "|"]  # of CSV
IGNORED = "ignored"  # a column that is called as a side, and is not one
MAX_SHOWN_CELL = 40


class _Table(Source):
    # The names of all columns, such as ["id", "en", "de"]: those of the two languages are read.
    columns: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
    header: bool = False  # the first line is not text
    chosen_dialect: ClassVar[Mapping[str, Any]] = {}  # keys that are not to be detected

    @classmethod
    def of_file(cls, path: str, src: Language, tgt: Language, columns: Sequence[str]) -> Source:
        first, langs = cls.names_in(path), (src, tgt)
        names, sides, is_header = _find_columns(first, columns, langs, f"--{cls.key} {path}")
        # In the recipe, only the two sides have names of a side.
        named = [IGNORED if is_side(name, langs) else name for name in names]
        for position, lang in zip(sides, langs, strict=True):
            named[position] = str(lang)
        keys = {cls.key: path, **cls._guessed(path), "columns": named, "header": is_header}
        return cls.model_validate(keys)

    @classmethod
    def names_in(cls, path: str) -> Sequence[str]:
        """Return the cells of the first line."""
        unnamed = cls.model_validate({cls.key: path, **cls._guessed(path), "columns": ("", "")})
        return next(unnamed._cells(TextFile(own_path(path))), (0, []))[1]

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
        sides = self._sides(variants, text)
        for n_before, (number, cells) in enumerate(self._cells(text)):
            if len(cells) != len(self.columns):
                raise UserError(
                    f"{text}, line {number:,}: {len(cells):,} columns, but the recipe names "
                    f"{len(self.columns):,} ({', '.join(self.columns)}); correct one of them"
                )
            if n_before == 0:
                self._check_header(cells, sides, text, variants)
            if n_before or not self.header:
                yield tuple(cells[side] for side in sides)

    def _sides(self, variants: Variants, text: object) -> tuple[int, int]:
        src, tgt = variants.langs
        remedy = f"name one column {src} and one {tgt}"
        return variants.choose_columns(self.columns, f"columns of {text}", remedy)

    def _check_header(
        self, cells: Sequence[str], sides: tuple[int, int], text: TextFile, variants: Variants
    ) -> None:
        """Refuse to train on the names of columns, or against them."""
        src, tgt = find_sides(cells, variants.langs)
        is_header = bool(src and tgt)
        is_swapped = are_swapped([cells[side] for side in sides], variants.langs)
        if (is_header and not self.header) or (self.header and is_swapped):
            first = ", ".join(shorten(cell) for cell in cells)
            raise UserError(
                f"{text}, line 1 names the columns: {first}; the recipe must have header = true, "
                f"and columns that agree, not {', '.join(self.columns)}"
            )

    def _header_description(self) -> str:
        return "with a header" if self.header else "without a header"

    @abstractmethod
    def _cells(self, text: TextFile) -> Iterator[tuple[int, list[str]]]:
        """Yield the cells of each row, and the number of its last line."""

    @classmethod
    def with_dialect(cls, **keys: Any) -> "type[_Table]":
        """Return this kind with keys of the dialect that are not detected in its files."""
        kind: type[_Table] = new_class(cls.__name__, (cls,))
        kind.chosen_dialect = keys
        return kind

    @classmethod
    def _guessed(cls, path: str) -> Mapping[str, Any]:
        """Return the keys of the dialect of a file."""
        return cls.chosen_dialect or cls._detect_dialect(path)

    @classmethod
    @abstractmethod
    def _detect_dialect(cls, path: str) -> dict[str, Any]:
        """Detect the dialect in the lines of a file."""


def _rows_of(text: TextFile, delimiter: str, *, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, and the number of its last line.

    A first line such as "sep=;", which declares the delimiter for Excel, is not a row.
    """
    lines = read_lines(text)
    n_skipped = 0
    first = next(lines, None)
    declared = directive(first) if first is not None else None
    if declared is None:
        lines = chain([] if first is None else [first], lines)
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
            yield number + n_skipped, [cell.replace("\n", " ") for cell in cells] or [""]
    except QuotingError as error:
        raise UserError(
            f"{text}, line {error.line + n_skipped:,}: {error}; quote by RFC 4180"
        ) from None


def _find_columns(
    first: Sequence[str], columns: Sequence[str], langs: tuple[Language, Language], option: str
) -> tuple[Sequence[str], tuple[int, int], bool]:
    """Find the two sides in a user's table.

    Args:
        first: The cells of line 1, which is a header if both sides or names of `columns` are in it.
        columns: What the user named: nothing, source and target of a header, or all columns.
        langs: The languages of source and target.
        option: The option and path of the table, for messages.

    Returns:
        The names of all columns, the positions of source and target, whether line 1 is a header.
    """
    cells = [cell.strip().casefold() for cell in first]
    asked = [column.strip().casefold() for column in columns]
    found = [name for name in asked if name in cells]
    labels = [shorten(cell, MAX_SHOWN_CELL) for cell in first]
    remedy = f"name source and target, {option}:SOURCE,TARGET, or without a header all columns"
    if len(asked) == len(found) == 2:
        if asked[0] == asked[1] or cells.count(asked[0]) + cells.count(asked[1]) > 2:
            raise UserError(
                f"{option} has columns with the same name ({listed(labels)}); name all columns, "
                "each with another name"
            )
        check_order(columns, langs, f"{option}:{','.join(columns)}")
        return first, (cells.index(asked[0]), cells.index(asked[1])), True
    at_their_place = [name for name, cell in zip(asked, cells, strict=False) if name == cell]
    if columns and (len(columns) != len(first) or len(at_their_place) != len(found)):
        raise UserError(
            f"{option} has {len(first):,} columns, in line 1 {listed(labels)}, and the names are "
            f"{listed(columns)}; {remedy}"
        )
    names = columns or first
    is_header = bool(found) or all(find_sides(first, langs))
    src, tgt = find_sides(names, langs)
    # Two columns with other names, or without any, are source and target.
    in_order = 1 not in src and 0 not in tgt if columns else not src and not tgt
    if len(names) == 2 and in_order:
        return names, (0, 1), is_header
    labels = list(columns) or labels
    return names, Variants(*langs).choose_columns(names, option, remedy, labels), is_header


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

    def _cells(self, text: TextFile) -> Iterator[tuple[int, list[str]]]:
        return _rows_of(text, "\t", quoted=self.quoted)


class Csv(_Table):
    """A file of columns with commas, semicolons or vertical bars between them (RFC 4180)."""

    key = "csv"
    path_keys = ("csv",)
    title = "CSV"

    csv: str
    delimiter: Delimiter = ","

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether a text has as many cells in nearly all lines, cut where no space follows.

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

    def _cells(self, text: TextFile) -> Iterator[tuple[int, list[str]]]:
        return _rows_of(text, self.delimiter, quoted=True)


def _width(line: str, delimiter: str) -> int:
    """Return the number of cells of a line, or 0 if it is not a row of a CSV file."""
    without_numbers = re.sub(r"(?<=\d),(?=\d)", "", line)  # 1,5 is a number
    try:
        [(_, cells)] = split_quoted([without_numbers], delimiter)
    except (QuotingError, ValueError):
        return 0
    return 0 if any(cell.startswith(" ") for cell in cells[1:]) else len(cells)
