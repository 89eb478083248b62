"""Tables of columns, two of which are a sentence and its translation: TSV and CSV (RFC 4180)."""

import csv
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from nmtkit.errors import UserError, shortened
from nmtkit.languages import TREE, Language
from nmtkit.sources.sides import are_swapped, check_order, find_sides, is_side, named_languages
from nmtkit.sources.source import Row, Source, own_path
from nmtkit.sources.text import MAX_LINE_BYTES, TextFile, read_lines
from nmtkit.sources.variants import Variants, listed

IGNORED = "ignored"  # a column that is called as a side, and is not one
MAX_SHOWN_CELL = 40
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
    labels = [shortened(cell, MAX_SHOWN_CELL) for cell in first]
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


def _names(cells: Sequence[str]) -> bool:
    """Return whether a line names columns: both sides, or two languages."""
    return len(named_languages(cells)) > 1 or all(find_sides(cells, (TREE, TREE)))


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
