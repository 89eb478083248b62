"""The columns of a user's table: which two are the sides, and whether line 1 is a header."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from nmtkit.sources.sides import (
    MAX_NAME_CHARACTERS,
    Positions,
    UnclearColumnsError,
    choose_columns,
    find_sides,
    is_side_word,
    named_languages,
    plain,
)
from nmtkit.sources.source import check_order
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import did_you_mean
from nmtkit.utils.text import join_names, shorten

N_COMPARED_ROWS = 100  # line 1 is compared with them
MAX_LABEL_WORDS = 3
# Categories of Unicode: full stops, commas and the like, and quotation marks; not brackets.
SENTENCE_PUNCTUATION = ("Po", "Pf", "Pi")
SKIPPED = "-"  # stands for a column that is not named

Row = Sequence[str]


@dataclass(frozen=True)
class Columns:
    """The names of all columns, the positions of source and target, and whether there is a header.

    Without a header, line 1 is text.
    """

    names: Row
    sides: Positions
    has_header: bool


def find_columns(
    rows: Sequence[Row], typed: Sequence[str], langs: tuple[Language, Language], option: str
) -> Columns:
    """Find the two sides in a user's table.

    Args:
        rows: The first rows, at least one.
        typed: The columns that the user named: none, the source and the target of a header, or all,
            of which some may be `SKIPPED`.
        langs: The languages of source and target.
        option: The option and path of the table, for messages.

    Raises:
        UserError: The two sides, or whether there is a header, cannot be determined.
    """
    first = rows[0]
    remedy = (
        f"pass {option}:SOURCE,TARGET, or if there is no header, the names of all columns, with "
        f"{SKIPPED} for each that is skipped"
    )
    if not typed:
        is_named = names_sides(first, langs) or any(find_sides(first, langs))
        if len(first) != 2 or is_named:
            return Columns(first, choose_columns(first, langs, option, remedy, in_words=True), True)
        # A header in a language that nmtkit does not recognize must not become a sentence.
        if looks_like_header(rows):
            src, tgt = langs
            raise UnclearColumnsError(
                f"line 1 of {option} may be a header ({_labels(first)}); pass its columns as "
                f"{option}:SOURCE,TARGET, or if it is text, pass {option}:{src},{tgt}"
            )
        return Columns(first, (0, 1), has_header=False)

    cells = [plain(cell) for cell in first]
    used = [position for position, name in enumerate(typed) if name != SKIPPED]
    in_header = [typed[position] for position in used if plain(typed[position]) in cells]
    if len(typed) == len(in_header) == 2:
        return _header_columns(first, typed, langs, option)

    # Otherwise, the names are those of all columns. Those in a header must be at their places.
    in_place = []
    for name, cell in zip(typed, cells, strict=False):
        if plain(name) == cell and name != SKIPPED:
            in_place.append(name)
    if len(typed) != len(first) or in_place != in_header:
        raise UserError(
            f"expected {len(first):,} column names for {option} (line 1 is {_labels(first)}), got "
            f"{len(typed):,} ({', '.join(typed)}); {remedy}"
        )
    # Line 1 is a header if it has the names, or names both languages otherwise.
    has_header = bool(in_header) or names_sides(first, langs)
    sources, targets = find_sides(typed, langs)
    # Two names that are not those of the languages are in the order of source and target.
    if len(used) == 2 and used[1] not in sources and used[0] not in targets:
        return Columns(typed, (used[0], used[1]), has_header)
    return Columns(typed, choose_columns(typed, langs, option, remedy, in_words=True), has_header)


def names_sides(cells: Row, langs: tuple[Language, Language]) -> bool:
    """Return whether cells of line 1 name both sides."""
    try:
        choose_columns(cells, langs, "line 1", in_words=True)
    except UserError:
        return False
    return True


def _header_columns(
    first: Row, typed: Sequence[str], langs: tuple[Language, Language], option: str
) -> Columns:
    """Find the source and the target that the user named in a header; see `find_columns`."""
    cells = [plain(cell) for cell in first]
    src, tgt = (plain(name) for name in typed)
    if src == tgt or cells.count(src) + cells.count(tgt) > 2:
        raise UserError(
            f"{option} has columns with the same name ({_labels(first)}); pass the names of all "
            "columns, all different"
        )
    check_order(typed, langs, f"{option}:{','.join(typed)}")
    return Columns(first, (cells.index(src), cells.index(tgt)), has_header=True)


def check_names(first: Row, typed: Sequence[str], option: str) -> None:
    """Refuse names that a user misspelt.

    Args:
        first: The cells of line 1.
        typed: The columns that the user named.
        option: The option and path of the table, for messages.

    Raises:
        UserError: A name is not in line 1, and the names are not those of all columns; or it is
            similar to the cell of its own column.
    """
    cells = [plain(cell) for cell in first]
    for position, name in enumerate(typed):
        if plain(name) in cells or name == SKIPPED:
            continue
        candidates = first
        if len(typed) == len(first):
            # With a name for every column, line 1 may be text: only its own cell can be meant, and
            # the name of a side is not misspelt, even if a word of the text is similar.
            is_side_name = is_side_word(name) or named_languages([name])
            candidates = [] if is_side_name else first[position : position + 1]
        hint = did_you_mean(name, candidates)
        if hint or len(typed) != len(first):
            raise UserError(
                f"{option} has no column {name!r}{hint}; its columns, by line 1, are "
                f"{_labels(first)}; if line 1 is text, pass the names of all {len(first):,} columns"
            )


def looks_like_header(rows: Sequence[Row]) -> bool:
    """Return whether line 1 has labels, such as text_de and text_en, unlike most other rows.

    A label is at most three words without punctuation after them. If most rows have labels only, as
    in a list of terms, a name with an underscore is the only sign of a header.
    """
    first, *others = rows
    if not _has_labels(first):
        return False
    if any("_" in cell for cell in first):
        return True
    n_labelled = sum(map(_has_labels, others))
    return 2 * n_labelled < len(others)


def _has_labels(row: Row) -> bool:
    """Return whether all cells of a row are short, and no word is followed by punctuation."""
    for cell in row:
        words = cell.split()
        if len(words) > MAX_LABEL_WORDS:
            return False
        for word in words:
            if unicodedata.category(word[-1]) in SENTENCE_PUNCTUATION:
                return False
    return True


def _labels(row: Row) -> str:
    """Return the cells of a row for a message."""
    return join_names(shorten(cell, MAX_NAME_CHARACTERS) for cell in row)
