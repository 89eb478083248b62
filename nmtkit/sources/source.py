"""The base class of all kinds of sources: keys in a recipe, a name, an identity, and pairs.

A new kind is a subclass in a module of its own, and a line in `sources/kinds.py`.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import Field

from nmtkit.sources.sides import Variants, are_swapped, choose_columns, named_languages
from nmtkit.sources.text_file import TextFile
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME, Section, Weight, did_you_mean
from nmtkit.utils.text import join_names

Pair = tuple[str, str]
Row = tuple[str, ...]  # a sentence with its translations: none, one or several

TEXT = "text"  # the type of the columns that can be read
DETECTED: Mapping[str, Any] = MappingProxyType({})  # a dialect without fixed keys


class Source(Section, ABC):
    """A text and its translations, as a recipe or the catalog describes them.

    Without a `name`, it is named after its files.
    """

    key: ClassVar[str]  # the key in a recipe that selects this kind
    path_keys: ClassVar[tuple[str, ...]] = ()  # the keys whose values are paths
    title: ClassVar[str]  # the name of this kind in messages
    # The remedy where plain text is expected.
    to_plain: ClassVar[str] = "copy its sentences to a text file, one per line"
    form: ClassVar[str] = "plain text"  # the format of its files, as `sources.kinds` names it
    # Whether it can be a treebank, plain parallel text, or either.
    trees: ClassVar[tuple[bool, ...]] = (False,)
    # Every text of this kind names the languages of its sides.
    has_languages: ClassVar[bool] = False
    has_option: ClassVar[bool] = False  # `nmtkit new` has an option for it, named like its key
    # Its path may be a folder, whose files count as one in the fingerprint.
    may_be_folder: ClassVar[bool] = False

    # Test sets need different names; the names of their files may be the same.
    name: Annotated[str, Field(pattern=SET_NAME)] | None = None
    weight: Weight = 1.0  # of training text
    swapped: bool = False  # the target comes first, and callers of `rows` exchange the sides

    @abstractmethod
    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the sentences with their translations, in order and in bounded memory.

        Args:
            texts: What `texts_at` returns.
            variants: Chooses the two sides of text in several languages, and counts skipped units.

        Yields:
            Rows. No text of a row contains a line feed.
        """

    def paths(self) -> list[str]:
        """Return the paths in the recipe or the catalog, in the order of `path_keys`."""
        paths: list[str] = []
        for key in self.path_keys:
            value = getattr(self, key)
            if isinstance(value, str):
                paths.append(value)
            elif value is not None:  # several references, for example
                paths += value
        return paths

    def files(self) -> list[TextFile]:
        """Return the user's files of the text."""
        return self.texts_at([TextFile(expand_path(path)) for path in self.paths()])

    def texts_at(self, places: Sequence[TextFile]) -> list[TextFile]:
        """Return the texts that `rows` reads, in files, archives or folders.

        Args:
            places: The user's files and folders, or the downloads of the catalog: one for each of
                `paths`.
        """
        return list(places)

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text, for the fingerprint."""
        return [self.key, *hashes]

    def check(self, src: Language, tgt: Language) -> None:
        """Check the keys against the languages of the recipe.

        Raises:
            ValueError: They do not agree.
        """

    def warnings(self, _src: Language, _tgt: Language) -> list[str]:
        """Return warnings about the keys and the languages of the recipe."""
        return []

    def default_name(self) -> str:
        """Return the name of a source without one in the recipe."""
        return Path(self.paths()[0]).name

    def description(self) -> str:
        """Describe the format that the text is read in, in a few words."""
        return self.title

    def reversed(self) -> "Source":
        """Return the source for the opposite direction.

        Texts that are named after languages follow the languages of the recipe. Otherwise they have
        an order, and `swapped` turns it round.
        """
        [path] = self.paths()
        if len(named_languages(self.names_in(path))) > 1:
            return self
        return self.model_copy(update={"swapped": not self.swapped})

    @classmethod
    def recognizes(cls, _head: str) -> bool:
        """Return whether a text that begins with `_head` looks like this kind."""
        return False

    # For `nmtkit new`: a file of the user, before its columns and languages are known

    @classmethod
    def from_file(
        cls,
        path: str,
        _src: Language,
        _tgt: Language,
        columns: Sequence[str],
        dialect: Mapping[str, Any] = DETECTED,
    ) -> "Source":
        """Return the source of a user's file, as `nmtkit new` writes it to a recipe.

        Args:
            columns: The columns that the user named; empty to detect them.
            dialect: Keys of the recipe that are not detected.
        """
        if columns:
            raise UserError(f"{path} has no columns; omit :{','.join(columns)}")
        return cls.model_validate({cls.key: path, **dialect})

    @classmethod
    def names_in(cls, path: str, dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the names of the texts in a user's file. Languages are detected in them.

        Args:
            dialect: Keys of the recipe that are not detected.

        Raises:
            NotImplementedError: `nmtkit new` has no option for this kind of source, and nothing
                calls this.
        """
        raise NotImplementedError(f"nmtkit new has no option for {cls.title}")

    @classmethod
    def languages_of(cls, names: Sequence[str]) -> Sequence[Language]:
        """Return the languages that `names` of `names_in` show: by default, all are tags."""
        return named_languages(names)

    @classmethod
    def check_columns(
        cls, path: str, columns: Sequence[str], dialect: Mapping[str, Any] = DETECTED
    ) -> None:
        """Refuse names of columns that a user's file does not have.

        Args:
            columns: The names that the user typed.
            dialect: Keys of the recipe that are not detected.

        Raises:
            UserError: A name is misspelt.
        """

    @classmethod
    def unread_in(cls, _path: str) -> str:
        """Return an addition to messages: the columns of a user's file that have no text."""
        return ""

    @classmethod
    def sample_in(
        cls, _path: str, _names: Sequence[str], _dialect: Mapping[str, Any] = DETECTED
    ) -> list[Sequence[str]]:
        """Return the first rows of a user's file, with a cell for each of `names_in`.

        Messages propose the columns with the longest cells. Without rows, they propose any.
        """
        return []


class ColumnSource(Source):
    """Rows of named texts. The recipe may name the two that are read."""

    # The columns of source and target, by default those that are named after the languages.
    # Nested columns are written with dots, such as "translation.en".
    columns: Annotated[tuple[str, str], Field(strict=False)] | None = None

    @classmethod
    def from_file(
        cls,
        path: str,
        src: Language,
        tgt: Language,
        columns: Sequence[str],
        dialect: Mapping[str, Any] = DETECTED,
    ) -> "Source":
        """Return the source of a user's file.

        Args:
            columns: The columns of source and target; empty to detect them by the languages.
            dialect: Keys of the recipe that are not detected.
        """
        if not columns:
            names = pair_keys(cls.names_in(path, dialect))
            remedy = f"pass --{cls.key} {path}:SOURCE,TARGET{cls.unread_in(path)}"
            sides = choose_columns(names, (src, tgt), path, remedy, in_words=True)
            columns = [names[position] for position in sides]
        elif len(columns) != 2 or len(set(columns)) != 2:
            raise UserError(
                f"{path}: expected the columns of source and target, got {join_names(columns)}; "
                f"pass --{cls.key} {path}:SOURCE,TARGET"
            )
        # The user may have typed the columns in the order of the file.
        check_order(last_parts(columns), (src, tgt), f"--{cls.key} {path}:{','.join(columns)}")
        return cls.model_validate({cls.key: path, "columns": tuple(columns), **dialect})

    @classmethod
    def check_columns(
        cls, path: str, columns: Sequence[str], dialect: Mapping[str, Any] = DETECTED
    ) -> None:
        """Refuse keys that a user's file does not have. See `Source.check_columns`."""
        names = cls.names_in(path, dialect)
        for column in columns:
            if column not in names:
                raise UserError(
                    f"{path} has no texts in {column!r}{did_you_mean(column, names)}; it has "
                    f"{describe_columns(cls.types_in(path))}"
                )

    @classmethod
    def types_in(cls, path: str) -> dict[str, str]:
        """Return the columns of a user's file with the types of their values; `TEXT` is read.

        Raises:
            NotImplementedError: See `names_in`.
        """
        raise NotImplementedError(f"nmtkit new has no option for {cls.title}")

    @classmethod
    def names_in(cls, path: str, _dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the columns of a user's file that have text; see `Source.names_in`."""
        return [name for name, value_type in cls.types_in(path).items() if value_type == TEXT]

    @classmethod
    def languages_of(cls, names: Sequence[str]) -> Sequence[Language]:
        """Return the languages that keys show; of nested ones, the last part counts."""
        return detect_languages(last_parts(pair_keys(names)))

    @classmethod
    def unread_in(cls, path: str) -> str:
        """Return an addition to messages: the columns of a user's file that have no text."""
        types = cls.types_in(path).items()
        unread = [f"{name} ({value_type})" for name, value_type in types if value_type != TEXT]
        return f"; {join_names(unread)} cannot be read as text" if unread else ""

    def reversed(self) -> Source:
        """Return the source for the opposite direction: the named columns, exchanged."""
        if self.columns is None:
            return self
        return self.model_copy(update={"columns": self.columns[::-1]})

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the columns, if they are named."""
        return super().identity(hashes) + list(self.columns or ())


def detect_languages(names: Sequence[str]) -> list[Language]:
    """Return the languages that the names of a text show if the user named none.

    Of more than two columns, any may have the sentences: languages must be in words, like
    "English", and no other column may be one.
    """
    shown = [name for name in names if named_languages([name])]
    if len(names) > 2:
        return named_languages(shown) if all(map(Language.is_name_in_words, shown)) else []
    return named_languages([name for name in shown if Language.shown_by(name) is not None])


def pair_keys(names: Sequence[str]) -> Sequence[str]:
    """Return the keys of the object `translation` (as Hugging Face writes it), else all names."""
    keys = [name for name in names if name.startswith("translation.")]
    return keys if len(keys) > 1 else names


def describe_columns(types: Mapping[str, str]) -> str:
    """Return the columns for a message, with their types if they have no text."""
    return join_names(
        name if value_type == TEXT else f"{name} ({value_type})"
        for name, value_type in types.items()
    )


def check_order(names: Sequence[str], langs: Sequence[Language], where: str) -> None:
    """Refuse the names that the user gave to source and target if they are swapped."""
    if are_swapped(names, langs):
        src, tgt = langs
        raise UserError(
            f"{where} has {tgt} before {src}, but the source ({src}) must come first; swap them, "
            "or swap --src-lang and --tgt-lang"
        )


def last_parts(names: Iterable[str]) -> list[str]:
    """Return names without those of the objects around them: "en" for "text.en"."""
    return [name.rpartition(".")[2] for name in names]


def expand_path(path: str) -> Path:
    """Return a user's path, with the environment variable that it begins with replaced.

    Raises:
        UserError: The variable is not set.
    """
    if not path.startswith("$"):
        return Path(path)
    variable, _, rest = path.partition("/")
    folder = os.path.expandvars(variable)
    # `expandvars` leaves unknown variables as they are.
    if not folder or folder.startswith("$"):
        raise UserError(
            f"the environment variable {variable[1:]} of {path} is not set; set it to a folder"
        )
    return Path(folder, rest)


def combine_hashes(hashes: Sequence[str]) -> str:
    """Return one hash for several files."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
