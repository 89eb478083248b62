"""The rule of detection: the columns, keys, suffixes or tags that are the sides of a text."""

import re
from collections.abc import Sequence
from functools import lru_cache

from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import join_names

SIDE_WORDS = (("src", "source"), ("tgt", "target", "trg"))
# Names of columns that hold the language or direction of a row.
ROW_LANGUAGE = re.compile(
    r"((src|source|tgt|target|trg)[ _-]?)?(lang(uage)?s?|locale)([ _-]?(pair|code))?|direction|lp"
)

Positions = tuple[int, int]  # of source and target


def find_sides(names: Sequence[str], langs: Sequence[Language]) -> list[list[int]]:
    """Find the names that may be the source, and those that may be the target, by position.

    This is the only rule of detection. A name is a side if it is exactly one of these:

    - `src` or `source`; `tgt`, `target` or `trg`
    - A tag, the English name or the native name of the language of the side. Names of an equal
      language come before those of a more general or more specific one, and a name of the language
      of one side is not the other side.

    Args:
        names: Names of columns, keys, suffixes or tags.
        langs: The languages of source and target.

    Returns:
        The positions of the candidates for source and target.
    """
    languages = _languages_by_position(names)
    sides = []
    for words, lang, other in zip(SIDE_WORDS, langs, reversed(langs), strict=True):
        named = [position for position, name in enumerate(names) if plain(name) in words]
        equal = []
        same_code = []
        similar = []
        for position, language in languages.items():
            if not lang.matches(language) or language == other:
                continue
            similar.append(position)
            if language.code == lang.code:
                same_code.append(position)
                if language.subtags == lang.subtags:
                    equal.append(position)
        # The closest candidates exclude the others: zh-TW before zh.
        sides.append(sorted(named + (equal or same_code or similar)))
    return sides


def choose_columns(
    names: Sequence[str],
    langs: Sequence[Language],
    where: str,
    remedy: str = "use one of these as the language",
    labels: Sequence[str] = (),
) -> Positions:
    """Return the positions of the two sides.

    Args:
        names: Names of columns, keys or files.
        langs: The languages of source and target.
        where: The text that has these names, for messages.
        remedy: What the user can do about a side without a candidate or with several.
        labels: The names in messages, if `names` are parts of longer ones.

    Raises:
        UserError: A side has no candidate or several, or the direction differs by row.
    """
    labels = labels or names
    sides = find_sides(names, langs)
    src, tgt = langs
    for lang, positions in zip(langs, sides, strict=True):
        if len(positions) > 1:
            candidate_names = join_names(labels[position] for position in positions)
            raise UserError(
                f"{where} has several candidates for {lang}: {candidate_names} (it has "
                f"{join_names(labels)}); {remedy}"
            )
    # One name is never both sides, even if it matches both: pt matches pt-BR and pt-PT.
    if not all(sides) or sides[0] == sides[1]:
        raise UserError(
            f"{where} does not have both {src} and {tgt} (it has {join_names(labels)}); {remedy}"
        )
    src_position = sides[0][0]
    tgt_position = sides[1][0]

    # The language of a column named "source" may depend on a column such as "source_lang".
    row_languages = [name for name in names if ROW_LANGUAGE.fullmatch(plain(name))]
    has_side_word = is_side_word(names[src_position]) or is_side_word(names[tgt_position])
    if row_languages and has_side_word:
        raise UserError(
            f"{where} has {join_names(row_languages)}, so the direction may differ by row; "
            f"write one file per direction, or if all rows have the same, {remedy}"
        )
    return src_position, tgt_position


def choose_names(names: Sequence[str], langs: Sequence[Language], where: str) -> tuple[str, str]:
    """Return the names of the two sides; arguments and errors are those of `choose_columns`."""
    src_position, tgt_position = choose_columns(names, langs, where)
    return names[src_position], names[tgt_position]


@lru_cache(maxsize=2**12)
def is_side(name: str, langs: tuple[Language, Language]) -> bool:
    """Return whether a name is a candidate for one side or the other."""
    return any(find_sides([name], langs))


def are_swapped(names: Sequence[str], langs: Sequence[Language]) -> bool:
    """Return whether names for source and target are the languages of target and source."""
    return bool(named_languages(names)) and find_sides(names, langs) == [[1], [0]]


def check_order(names: Sequence[str], langs: Sequence[Language], where: str) -> None:
    """Refuse names of source and target that are swapped; they are never exchanged silently.

    Args:
        names: The names that the user gave to source and target.
        langs: The languages of source and target.
        where: The text or option with these names, for the message.
    """
    if are_swapped(names, langs):
        src, tgt = langs
        raise UserError(
            f"{where} has {tgt} before {src}, but the source ({src}) must come first; swap them, "
            "or swap --src-lang and --tgt-lang"
        )


def named_languages(names: Sequence[str]) -> list[Language]:
    """Return the different languages that names are exactly, in order."""
    return list(dict.fromkeys(_languages_by_position(names).values()))


def _languages_by_position(names: Sequence[str]) -> dict[int, Language]:
    """Return the languages of those names that are languages."""
    languages = {}
    for position, name in enumerate(names):
        # Some words for sides are also tags: "tgt" is Central Tagbanwa.
        language = None if is_side_word(name) else Language.from_name(name)
        if language is not None:
            languages[position] = language
    return languages


def is_side_word(name: str) -> bool:
    """Return whether a name is a side in any language, such as "source"."""
    return any(plain(name) in words for words in SIDE_WORDS)


def plain(name: str) -> str:
    """Return the form of a name in which names are compared: without case and outer spaces."""
    return name.strip().lower()
