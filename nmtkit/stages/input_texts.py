"""The texts on the command line of `nmtkit new`: their languages, and their sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nmtkit.decoding.bundle import Bundle
from nmtkit.sources.file_pair import FilePair, differing_parts
from nmtkit.sources.kinds import KINDS, check_form, check_keys
from nmtkit.sources.sides import find_sides, named_languages
from nmtkit.sources.source import ColumnSource, Source, expand_path, last_parts
from nmtkit.sources.text import TextFile
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import join_names, shorten

Languages = tuple[Language, Language]
MAX_NAME_CHARACTERS = 40  # of a name in a message


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
        """Parse "a.tsv" or "a.tsv:id,en,de"; a path may contain a colon itself.

        Args:
            kind: The kind of source that reads it.
            value: The value of the option.
            dialect: Keys of the recipe that are not detected.
        """
        path, _, columns = value.rpartition(":")
        # What follows the last colon are columns only if the path is a file without it.
        if expand_path(value).exists() or not path or not expand_path(path).exists():
            return cls(kind, (value,), dialect=dialect)
        return cls(kind, (path,), columns.split(","), dialect=dialect)

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
    def languages(self) -> list[Language]:
        """The languages that the names are exactly; of nested keys, the last part counts."""
        is_nested = issubclass(self.kind, ColumnSource)
        return named_languages(last_parts(self.names) if is_nested else self.names)

    def source(self, langs: Languages, *, reverse: bool, plain: bool = False) -> Source:
        """Return the source of the text.

        Args:
            langs: The languages of its two sides.
            reverse: Whether to exchange the sides.
            plain: Whether to read a pair of files as plain text, whatever it looks like.
        """
        if self.kind is FilePair:
            src, tgt = reversed(self.paths) if reverse else self.paths
            return FilePair(name=self.name, src=src, tgt=tgt, plain=plain)
        source = self.kind.from_file(self.paths[0], *langs, self.columns, self.dialect)
        # Columns of a table have names of languages; those of other kinds have an order.
        if reverse and isinstance(source, ColumnSource) and source.columns:
            return source.model_copy(update={"columns": source.columns[::-1]})
        return source


def parse_texts(
    src: Sequence[str],
    tgt: Sequence[str],
    files: Mapping[str, Sequence[str]],
    dialects: Mapping[str, Mapping[str, Any]],
) -> list[InputText]:
    """Return the texts that the options name.

    Args:
        src: Files of source sentences.
        tgt: Their translations, in the same order.
        files: Other files, by the key of their kind.
        dialects: Keys of recipes that are not detected, by the key of a kind.

    Raises:
        UserError: There is no text, or the number of source files is not that of target files.
    """
    # Files that are left over in one of the options are refused below.
    texts = [InputText(FilePair, paths) for paths in zip(src, tgt, strict=False)]
    kinds = {kind.key: kind for kind in KINDS}
    for key, values in files.items():
        for value in values:
            texts.append(InputText.parse(kinds[key], value, dialects.get(key, {})))
    if len(src) != len(tgt) or not texts:
        raise UserError(
            f"expected at least one text, and the same number of --src and --tgt (got {len(src)} "
            f"and {len(tgt)}); pass --src and --tgt, or --tsv, --csv, --jsonl, --tmx, --opus-zip "
            "or --dataset"
        )
    return texts


def check_formats(texts: Sequence[InputText], *, plain: bool) -> None:
    """Refuse files in a format that their option does not read, before looking into them.

    Args:
        texts: The texts.
        plain: Whether pairs of files are plain text, whatever they look like.
    """
    for text in texts:
        paths = [expand_path(path) for path in text.paths]
        if text.kind is FilePair and all(path.is_file() for path in paths):
            check_keys([TextFile(path, is_plain=plain) for path in paths])
        for path in paths:
            if path.is_file():
                check_form(TextFile(path, is_plain=plain and text.kind is FilePair), text.kind)


def find_languages(
    texts: Sequence[InputText], src_lang: str | None, tgt_lang: str | None, bundle: Bundle | None
) -> Languages:
    """Find the languages of source and target.

    Args:
        texts: All texts; their languages are used unless the user and the bundle name some.
        src_lang: The source language, if the user named it.
        tgt_lang: The target language, if the user named it.
        bundle: The bundle to be fine-tuned, if any.

    Returns:
        The two languages, which agree with the names of all texts that name languages.

    Raises:
        UserError: The languages or their order cannot be detected, or the texts differ in them.
    """
    src = Language.of(src_lang) if src_lang else None
    tgt = Language.of(tgt_lang) if tgt_lang else None

    # The first candidates that complete the pair are chosen. The bundle has an order, and so have
    # two files; columns may be in any order.
    file_pairs = [text for text in texts if text.kind is FilePair]
    other_texts = [text for text in texts if text.kind is not FilePair]
    candidates = []
    if bundle is not None:
        candidates.append([Language.of(bundle.text.src.lang), Language.of(bundle.text.tgt.lang)])
    candidates += [text.languages for text in file_pairs + other_texts]
    has_order = bool(bundle or src or tgt or any(text.languages for text in file_pairs))
    for languages in candidates:
        src, tgt = _complete(src, tgt, languages)

    unnamed = [text for text in texts if not text.languages]
    if src is None or tgt is None or (unnamed and not has_order):
        raise _not_detected(unnamed[0] if unnamed else texts[0])
    for text in file_pairs:
        _check_sides(text, (src, tgt), are_named=bool(src_lang and tgt_lang))
    return src, tgt


def _complete(
    src: Language | None, tgt: Language | None, languages: Sequence[Language]
) -> tuple[Language | None, Language | None]:
    """Fill in the unknown sides, if there is the same number of other languages.

    Args:
        src: The source language, if it is known.
        tgt: The target language, if it is known.
        languages: The languages of a text, in its order.
    """
    known = [side.code for side in (src, tgt) if side is not None]
    rest = [language for language in languages if language.code not in known]
    if len(rest) != 2 - len(known):
        return src, tgt
    return src or rest.pop(0), tgt or rest.pop(0)


def _not_detected(text: InputText) -> UserError:
    """Return the error for a text whose languages are unknown."""
    for path in map(expand_path, text.paths):
        if not path.exists():
            return UserError(f"{path} does not exist; correct the path")
    names = join_names(shorten(name, MAX_NAME_CHARACTERS) for name in text.names)
    seen = f" (names: {names})" if text.names else ""
    return UserError(
        f"could not detect the languages of {text}{seen}; pass --src-lang and --tgt-lang, such "
        "as --src-lang en --tgt-lang de"
    )


def _check_sides(text: InputText, langs: Languages, *, are_named: bool) -> None:
    """Check that the names of two files are those of source and target, in this order.

    Args:
        text: The two files.
        langs: The languages of source and target.
        are_named: Whether the user named both languages, which may then have nothing in common
            with the names of the files.
    """
    sides = find_sides(text.names, langs)
    is_free = are_named and not any(sides)
    if text.names and not is_free and sides != [[0], [1]]:
        src, tgt = langs
        raise UserError(
            f"{text} are named {join_names(text.names)}, but the languages are {src}, {tgt}; "
            "pass texts in one pair of languages, with --src in the source language"
        )
