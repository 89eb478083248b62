"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import csv
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from nmtkit.errors import UserError, shortened, shown
from nmtkit.languages import Language
from nmtkit.sources.source import Row, Source, own_path
from nmtkit.sources.text import MAX_LINE_BYTES, TextFile, read_lines
from nmtkit.sources.variants import SIDES, Variants, listed, sides_of

_FEWEST_LINES = 5  # that show whether a text is a table
_GUESSED_LINES = 1_000
_ESCAPED = re.compile(r'(^|\t)"([^"]|"")*""([^"]|"")+"(\t|$)')  # a cell such as "a ""word"" of it"
_QUOTED = re.compile(r'"([^"]|"")*"([,;]"([^"]|"")*")+')


class _Table(Source):
    # The names of all columns, such as ["id", "en", "de"]: those of the two languages are read.
    columns: Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
    header: bool = False  # the first line is not text

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
    def _guessed(cls, _path: str) -> dict[str, Any]:
        return {}


def _quoted(text: TextFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, and the number of its last line, as RFC 4180 has them."""
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = (f"{line}\n" for line in read_lines(text))
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for row in rows:
            yield rows.line_num, [cell.replace("\n", " ") for cell in row] or [""]
    except csv.Error as error:
        raise UserError(f"{text}, line {rows.line_num:,}: {error}; quote by RFC 4180") from None


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
        lines = head.split("\n")[:100]
        n_tabs = {line.count("\t") for line in lines if line}
        is_even = len(lines) > _FEWEST_LINES and len(n_tabs) == 1 and 0 not in n_tabs
        return is_even or _names(lines[0].removesuffix("\r").split("\t"))

    @classmethod
    def _guessed(cls, path: str) -> dict[str, Any]:
        lines = islice(read_lines(TextFile(own_path(path))), _GUESSED_LINES)
        return {"quoted": any(map(_ESCAPED.search, lines))}

    def identity(self, hashes: Sequence[str]) -> list[str]:
        return [*super().identity(hashes), *(["quoted"] if self.quoted else [])]

    def _cells(self, text: TextFile) -> Iterator[tuple[int, list[str]]]:
        if self.quoted:
            return _quoted(text, "\t")
        lines = enumerate(read_lines(text), 1)
        return ((number, line.split("\t")) for number, line in lines)


class Csv(_Table):
    """A file of columns with commas or semicolons between them (RFC 4180)."""

    key = "csv"
    path_keys = ("csv",)
    title = "CSV"

    csv: str
    delimiter: Literal[",", ";"] = ","

    @classmethod
    def recognizes(cls, head: str) -> bool:
        lines = [line.removesuffix("\r") for line in head.split("\n")[:100]]
        n_quoted = sum(bool(_QUOTED.fullmatch(line)) for line in lines)
        has_names = any(_names(lines[0].split(delimiter)) for delimiter in (",", ";"))
        return has_names or n_quoted >= max(_FEWEST_LINES, len(lines) - 2)

    @classmethod
    def _guessed(cls, path: str) -> dict[str, Any]:
        first = next(read_lines(TextFile(own_path(path))), "")
        return {"delimiter": max(",;", key=first.count)}

    def _cells(self, text: TextFile) -> Iterator[tuple[int, list[str]]]:
        return _quoted(text, self.delimiter)
