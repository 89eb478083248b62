"""The texts on the command line of `nmtkit new`: their languages, and their sources.

If columns or languages are unclear, a message proposes some. They are never used before the user
has passed them.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmtkit.decoding.bundle import Bundle
from nmtkit.sources import kinds
from nmtkit.sources.file_pair import FilePair, differing_parts
from nmtkit.sources.kinds import TABLES
from nmtkit.sources.sides import (
    MAX_NAME_CHARACTERS,
    UnclearColumnsError,
    check_direction,
    find_sides,
    named_languages,
)
from nmtkit.sources.source import Source, expand_path, last_parts, pair_keys
from nmtkit.sources.table_columns import SKIPPED, looks_like_header
from nmtkit.sources.text_file import TextFile
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language, find_tag_in
from nmtkit.utils.text import join_names, shorten

Languages = tuple[Language, Language]
PartialLanguages = tuple[Language | None, Language | None]
DEFAULT_LANGUAGES = ("en", "de")  # if nothing shows them


@dataclass(frozen=True)
class InputText:
    """A text, with the columns that were written after its path.

    Attributes:
        kind: The kind of source that reads it.
        paths: Its path, or the two paths of a `FilePair`.
        columns: Names of columns or keys; none if they are to be detected.
        name: Name of a test set.
        dialect: Keys of the recipe that are not detected, such as a delimiter.
    """

    kind: type[Source]
    paths: tuple[str, ...]
    columns: Sequence[str] = ()
    name: str | None = None
    dialect: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, kind: type[Source], value: str, dialect: Mapping[str, Any]) -> "InputText":
        """Parse "a.tsv" or "a.tsv:id,en,de"; paths and names may contain colons themselves.

        Args:
            value: The value of the option. A name with a comma is in quotation marks, as in CSV.
            dialect: Keys of the recipe that are not detected.
        """
        path = value
        while path and not expand_path(path).exists():
            path = path.rpartition(":")[0]
        path = path or value
        columns = next(csv.reader([value[len(path) + 1 :]]), [])
        return cls(kind, (path,), columns, dialect=dialect)

    def __str__(self) -> str:
        """Return the text as messages name it."""
        return " and ".join(self.paths)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of its sides or columns: typed, or from file names, a header, keys or tags."""
        # A pipe would be empty when the text is read after its names.
        for path in map(expand_path, self.paths):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise UserError(f"{path} is not a regular file; copy it to one")
        if self.kind is FilePair:
            return differing_parts(*self.paths)
        if self.columns:
            self.kind.check_columns(self.paths[0], self.columns, self.dialect)
            if len(self.columns) == 1:
                raise UserError(
                    f"{self.paths[0]}:{self.columns[0]} has one column; pass "
                    f"{self.paths[0]}:SOURCE,TARGET"
                )
            return self.columns
        return self.kind.names_in(self.paths[0], self.dialect)

    @cached_property
    def languages(self) -> Sequence[Language]:
        """The languages that the names show; of columns that the user named, all count."""
        if self.columns:
            return named_languages(last_parts(self.names))
        return self.kind.languages_of(self.names)

    def source(self, langs: Languages, *, reverse: bool, plain: bool = False) -> Source:
        """Return the source of the text, or with `reverse`, that of the opposite direction."""
        source: Source
        if self.kind is FilePair:
            src, tgt = self.paths
            source = FilePair(name=self.name, src=src, tgt=tgt, plain=plain)
        else:
            try:
                source = self.kind.from_file(self.paths[0], *langs, self.columns, self.dialect)
            except UnclearColumnsError as error:
                raise UnclearTextError(str(error), self, langs) from None
        return source.reversed() if reverse else source


class UnclearTextError(UserError):
    """The columns or languages of `text` are unclear; `langs` are those that are known."""

    def __init__(self, problem: str, text: InputText, langs: PartialLanguages) -> None:
        """Create the error with the problem as its message."""
        super().__init__(problem)
        self.text = text
        self.langs = langs


def parse_texts(
    src: Sequence[str],
    tgt: Sequence[str],
    files: Mapping[str, Sequence[str]],
    dialects: Mapping[str, Mapping[str, Any]],
    *,
    has_corpora: bool = False,
) -> list[InputText]:
    """Return the texts that the options name.

    Args:
        src: Files of source sentences.
        tgt: Their translations, in the same order.
        files: Other files, by the key of their kind.
        dialects: Keys of recipes that are not detected, by the key of a kind.
        has_corpora: Whether public corpora are named, too.

    Raises:
        UserError: There is no text, or the number of source files is not that of target files.
    """
    # Files that are left over in one of the options are refused below.
    texts = [InputText(FilePair, paths) for paths in zip(src, tgt, strict=False)]
    kinds_by_key = {kind.key: kind for kind in kinds.KINDS}
    for key, values in files.items():
        for value in values:
            texts.append(InputText.parse(kinds_by_key[key], value, dialects.get(key, {})))
    if len(src) != len(tgt) or not (texts or has_corpora):
        raise UserError(
            f"expected at least one text, and the same number of --src and --tgt (got {len(src)} "
            f"and {len(tgt)}); pass --src and --tgt, or --tsv, --csv, --jsonl, --tmx, --opus-zip, "
            "--dataset or --corpus"
        )
    return texts


def check_formats(texts: Sequence[InputText], *, plain: bool) -> None:
    """Refuse files in a format that their option does not read, before looking into them."""
    for text in texts:
        is_plain = plain and text.kind is FilePair
        paths = [expand_path(path) for path in text.paths]
        files = [TextFile(path, is_plain=is_plain) for path in paths if path.is_file()]
        kinds.check_formats(files, text.kind)


def find_languages(
    texts: Sequence[InputText], src_lang: str | None, tgt_lang: str | None, bundle: Bundle | None
) -> Languages:
    """Find the languages of source and target: of the user, else of the bundle, else of the texts.

    Raises:
        UserError: The languages or their order cannot be detected, or the texts differ in them.
    """
    src = Language.of(src_lang) if src_lang else None
    tgt = Language.of(tgt_lang) if tgt_lang else None

    # The first candidates that complete the pair are chosen. The bundle has an order, and so have
    # two files; columns may be in any order.
    file_pairs = [text for text in texts if text.kind is FilePair]
    other_texts = [text for text in texts if text.kind is not FilePair]
    candidates: list[Sequence[Language]] = []
    if bundle is not None:
        candidates.append([Language.of(bundle.text.src.lang), Language.of(bundle.text.tgt.lang)])
    candidates += [text.languages for text in file_pairs + other_texts]
    has_order = bool(bundle or src or tgt or any(text.languages for text in file_pairs))
    for languages in candidates:
        known = [side.code for side in (src, tgt) if side is not None]
        rest = [language for language in languages if language.code not in known]
        if len(known) + len(rest) == 2:
            src = src or rest.pop(0)
            tgt = tgt or rest.pop(0)

    unclear = [text for text in texts if not text.languages]
    if src is None or tgt is None:
        raise _not_detected((unclear or texts)[0], (src, tgt))
    if src == tgt:
        raise UserError(
            f"source and target are both {src}; between two variants of a language, pass both, "
            "such as --src-lang en_GB --tgt-lang en_US"
        )
    # Without an order, only names show which column is the source.
    for text in unclear:
        if not has_order and not any(find_sides(text.names, (src, tgt), in_words=True)):
            raise _not_detected(text, (src, tgt))
    for text in file_pairs:
        # The user knows the languages of files better than their suffixes show.
        are_named = src_lang and tgt_lang
        if (
            len(text.languages) == 2
            and not are_named
            and find_sides(text.names, (src, tgt)) != [[0], [1]]
        ):
            raise UserError(
                f"{text} are named {join_names(text.names)}, but the languages are {src}, {tgt}; "
                "pass texts in one pair of languages, with --src in the source language, or "
                "--src-lang and --tgt-lang if the names are wrong"
            )
    return src, tgt


def _not_detected(text: InputText, langs: PartialLanguages) -> UserError:
    """Return the error for a text whose languages or their order are not known."""
    for path in map(expand_path, text.paths):
        if not path.exists():
            return UserError(f"{path} does not exist; correct the path")
    check_direction(text.names, str(text), "pass its columns, --src-lang and --tgt-lang")
    names = join_names(shorten(name, MAX_NAME_CHARACTERS) for name in text.names)
    seen = f" (names: {names})" if text.names else ""
    return UnclearTextError(
        f"could not detect the languages of {text}{seen}{text.kind.unread_in(text.paths[0])}; "
        "pass --src-lang and --tgt-lang",
        text,
        langs,
    )


# Proposals of columns and languages


def propose(text: InputText, known: PartialLanguages) -> tuple[str, Languages] | None:
    """Return the value of the text's option with columns that may be the sides, and the languages.

    Of several columns, those with the longest cells are proposed: keys, numbers and comments are
    shorter than sentences.

    Args:
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
        context: Languages that it may be written in.
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
