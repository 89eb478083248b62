"""A proposal of columns and languages for a text of `nmtkit new` whose own are unclear.

It is part of a message, and never used before the user has passed it.
"""

import csv
import io
from collections.abc import Iterable, Sequence

from nmtkit.new.input_texts import InputText, Languages, PartialLanguages
from nmtkit.sources.kinds import TABLES
from nmtkit.sources.sides import find_sides, named_languages
from nmtkit.sources.source import pair_keys
from nmtkit.sources.table_columns import SKIPPED, looks_like_header
from nmtkit.utils.language import Language
from nmtkit.utils.language_names import find_tag_in

DEFAULT_LANGUAGES = ("en", "de")  # if nothing shows them


def propose(text: InputText, known: PartialLanguages) -> tuple[str, Languages] | None:
    """Return the value of the text's option with columns that may be the sides, and the languages.

    Of several columns, those with the longest cells are proposed: keys, numbers and comments are
    shorter than sentences.

    Args:
        text: The text.
        known: The languages of source and target, as far as they are known.

    Returns:
        None if the text does not have two columns.
    """
    path, names = text.paths[0], list(text.names)
    rows = text.kind.sample_in(path, names, text.dialect)
    if not rows:  # two files, or a text whose names are languages
        return path, _languages_of(names[:2], known)
    if len(names) < 2:
        return None
    if 2 == len(text.columns) < max(map(len, rows)):
        positions = [0, 1]
    else:
        positions = _longest(names, rows, known)
    sides = [names[position] for position in positions]
    # Line 1 of a table may be text.
    has_names = bool(
        text.columns
        or text.kind not in TABLES
        or looks_like_header(rows)
        or named_languages(rows[0])
    )
    languages = _languages_of(sides if has_names else [], known)

    # Columns without names are all named by their languages, and so are all if the user named all.
    if not has_names or len(text.columns) > 2:
        sides = [SKIPPED] * len(names)
        for position, language in zip(positions, languages, strict=True):
            sides[position] = names[position] if has_names else str(language)
    columns = io.StringIO()
    csv.writer(columns, lineterminator="").writerow(sides)
    return f"{path}:{columns.getvalue()}", languages


def _longest(
    names: Sequence[str], rows: Sequence[Sequence[str]], known: PartialLanguages
) -> list[int]:
    """Return the positions of the longest columns among those that may be the sides.

    Args:
        names: The names of all columns.
        rows: The first rows.
        known: See `propose`.
    """
    in_pair = pair_keys(names)
    columns = [position for position, name in enumerate(names) if name in in_pair]
    columns.sort(key=lambda position: -sum(len(row[position]) for row in rows))
    src, tgt = known
    if src is None or tgt is None:
        return sorted(columns[:2])  # in the order of the file
    candidates = find_sides(names, (src, tgt), in_words=True)
    for side, lang in enumerate((src, tgt)):
        for position in columns:
            if lang in _meanings(names[position], (src, tgt)):
                candidates[side].append(position)
    chosen: list[int] = []
    for own, other in (candidates, candidates[::-1]):
        free = [position for position in columns if position not in chosen]
        # "id" is a language if the user named it, but "is_valid" less likely than any other column.
        named = [p for p in free if p in own and Language.shown_by(names[p]) is not None]
        possible = [position for position in free if position in own or position not in other]
        chosen += (named or possible or free)[:1]
    return chosen


def _languages_of(sides: Sequence[str], known: PartialLanguages) -> Languages:
    """Return the languages that the names of two sides may mean.

    Args:
        sides: The names of source and target, or nothing.
        known: See `propose`.
    """
    languages = [language for language in known if language is not None]
    context = languages + named_languages(sides)
    src, tgt = known
    meanings = [_meanings(name, context) for name in sides] if len(sides) == 2 else [[], []]
    defaults = [Language.of(tag) for tag in DEFAULT_LANGUAGES]
    src = src or next(language for language in meanings[0] + defaults if language != tgt)
    tgt = tgt or next(language for language in meanings[1] + defaults if language != src)
    return src, tgt


def _meanings(name: str, context: Iterable[Language]) -> list[Language]:
    """Return the languages that a name may mean, also as a word of another language.

    In a German table, English may be called "Englisch".

    Args:
        name: The name.
        context: The languages in which it may be written.
    """
    word = name.rpartition(".")[2] or name
    languages = []
    for part, language in Language.within(word).items():
        if Language.shown_by(part) is not None:
            languages.append(language)
    for language in context:
        tag = find_tag_in(word, language.code)
        if tag is not None:
            languages.append(Language.of(tag))
    return languages
