"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from types import new_class
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from nmtkit.errors import UserError, shortened, shown
from nmtkit.languages import Language
from nmtkit.sources.dialect import (
    DELIMITERS,
    QuotingError,
    detect_delimiter,
    detect_quoting,
    directive,
    split_quoted,
)
from nmtkit.sources.formats import MIN_LINES, MIN_SHARE, first_lines
from nmtkit.sources.source import Row, Source, own_path
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import SIDES, Variants, listed, sides_of

Delimiter = Literal[",", ";", "|"]  # of CSV


class _Table(Source):
    # The names of all columns, such as ["id", "en", "de"]: those of the two languages are read.
    columns: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
    header: bool = False  # the first line is not text
    chosen_dialect: ClassVar[Mapping[str, Any]] = {}  # keys that are not to be detected

    @classmethod
    def of_file(cls, path: str, src: Language, tgt: Language, columns: Sequence[str]) -> Source:
        first, ours = cls.names_in(path), (str(src), str(tgt))
        of_two = len(columns) == 2 and set(columns) <= set(first)  # named as in the header
        both = zip(columns, first, strict=False)
        is_named = of_two or any(column.lower() == cell.lower() for column, cell in both)
        is_header = is_named or _names(first, src, tgt)
        named = columns or ours
        if is_header and (of_two or not columns):
            sides = sides_of(first, columns, src, tgt)
            known = dict(zip(sides, ours, strict=True)) if len(sides) == 2 else {}
            named = [known.get(cell, cell) for cell in first]
        if len(named) != len(first) or len(named) == 1:
            raise UserError(
                f"{path} has {len(first):,} columns, in line 1 {listed(map(shown, first))}, and "
                f"{listed(named)} are named; name all, as in {path}:id,{src},{tgt}, or two of them"
            )
        keys = {cls.key: path, **cls._guessed(path), "columns": tuple(named), "header": is_header}
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
            Variants(src, tgt).choose_names(self.columns, f"columns of {self._paths()[0]}")
        except UserError as error:
            raise ValueError(f"{error}; name one column {src} and one {tgt}") from None
        for column in self.columns:
            if self.columns.count(column) > 1 and Language.named(column) in (src, tgt):
                raise ValueError(f"columns of {self._paths()[0]} has {column} more than once")

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        [text] = texts
        names = variants.choose_names(self.columns, f"columns of {text}")
        sides = tuple(map(self.columns.index, names))
        for n_before, (number, cells) in enumerate(self._cells(text)):
            if len(cells) != len(self.columns):
                raise UserError(
                    f"{text}, line {number:,}: {len(cells):,} columns, but the recipe names "
                    f"{len(self.columns):,} ({', '.join(self.columns)}); correct one of them"
                )
            if n_before == 0:
                self._check_header(cells, text, variants)
            if n_before or not self.header:
                yield tuple(cells[side] for side in sides)

    def _check_header(self, cells: Sequence[str], text: TextFile, variants: Variants) -> None:
        """Refuse to train on the names of columns, or to swap what they name."""
        named = [Language.hinted(cell) for cell in cells]
        expected = [Language.hinted(column) for column in self.columns]
        ours = {lang.code for lang in variants.langs}
        differ = any(
            here and there and there.code in ours and here.contradicts(there)
            for here, there in zip(named, expected, strict=True)
        )
        is_header = _names(cells, *variants.langs)
        if (is_header and not self.header) or (differ and (self.header or is_header)):
            first = ", ".join(shortened(cell) for cell in cells)
            raise UserError(
                f"{text}, line 1 names the columns: {first}; the recipe must have header = true, "
                f"and columns that agree, not {', '.join(self.columns)}"
            )

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
            f"{text}, line 1 declares the delimiter {shown(declared)}, and the recipe has "
            f"{shown(delimiter)}; correct the recipe, or remove this line"
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


def _names(cells: Sequence[str], *langs: Language) -> bool:
    """Return whether a line names columns: the two sides, or two languages, one of `langs`."""
    # Names may hint at a language ("text_en") where both of `langs` are among them.
    named = {language for cell in cells if (language := Language.named(cell))}
    hints = {language.code for cell in cells if (language := Language.hinted(cell))}
    words = {cell.strip().lower() for cell in cells}
    ours = {lang.code for lang in langs}
    is_named = len(named) > 1 and (not ours or any(each.code in ours for each in named))
    is_hinted = bool(ours) and len(hints) > 1 and ours <= hints
    has_spaces = any(" " in re.sub(r" *\(.*\)", "", cell) for cell in cells)
    return is_named or (is_hinted and not has_spaces) or all(words & side for side in SIDES)


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
        return f"{self.title}, cells {cells}"

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
        return f"{self.title}, a {DELIMITERS[self.delimiter]} between cells"

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
