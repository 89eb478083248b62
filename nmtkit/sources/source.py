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

from nmtkit.sources.sides import check_order, choose_columns
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME, Section, Weight, did_you_mean
from nmtkit.utils.text import join_names

Pair = tuple[str, str]
Row = tuple[str, ...]  # a sentence with its translations: none, one or several

DETECTED: Mapping[str, Any] = MappingProxyType({})  # a dialect of which no key is fixed


class Source(Section, ABC):
    """Text from outside the catalog. Without a `name`, it is named after its files."""

    key: ClassVar[str]  # the key in a recipe that selects this kind
    path_keys: ClassVar[tuple[str, ...]] = ()  # the keys whose values are paths
    title: ClassVar[str]  # the name of this kind in messages
    to_plain: ClassVar[str] = "extract its text"  # the remedy where plain text is expected
    form: ClassVar[str] = "plain text"  # the format of its files, as `sources.kinds` names it
    # Whether it can be a treebank, plain parallel text, or either.
    trees: ClassVar[tuple[bool, ...]] = (False,)

    # Test sets need different names; the names of their files may be the same.
    name: Annotated[str, Field(pattern=SET_NAME)] | None = None
    weight: Weight = 1.0  # of training text

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
            path: The file.
            columns: The columns that the user named; empty to detect them.
            dialect: Keys of the recipe that are not detected.
        """
        if columns:
            raise UserError(f"{path} has no columns; omit :{','.join(columns)}")
        return cls.model_validate({cls.key: path, **dialect})

    @classmethod
    def names_in(cls, path: str, dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the names of the texts in a user's file, from which languages are detected.

        Args:
            path: The file.
            dialect: Keys of the recipe that are not detected.

        Raises:
            NotImplementedError: `nmtkit new` has no option for this kind of source, so that nothing
                calls this.
        """
        raise NotImplementedError(f"nmtkit new has no option for {cls.title}")

    @classmethod
    def check_columns(
        cls, path: str, columns: Sequence[str], dialect: Mapping[str, Any] = DETECTED
    ) -> None:
        """Refuse names of columns that a user's file does not have.

        Args:
            path: The file.
            columns: The names that the user typed.
            dialect: Keys of the recipe that are not detected.

        Raises:
            UserError: A name is misspelt.
        """

    def description(self) -> str:
        """Describe the format that the text is read in, in a few words."""
        return self.title

    @classmethod
    def recognizes(cls, _head: str) -> bool:
        """Return whether a text that begins with `_head` looks like this kind."""
        return False

    def default_name(self) -> str:
        """Return the name of a source to which the recipe gives none."""
        return Path(self._paths()[0]).name

    def files(self) -> list[TextFile]:
        """Return the files of the text."""
        return [TextFile(expand_path(path)) for path in self._paths()]

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text, for the fingerprint.

        Args:
            hashes: The hashes of its files.
        """
        return [self.key, *hashes]

    def check(self, src: Language, tgt: Language) -> None:
        """Check the keys against the languages of the recipe.

        Raises:
            ValueError: They do not agree.
        """

    @abstractmethod
    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the sentences with their translations, in order and in bounded memory.

        Args:
            texts: The files of the source, or the downloads of a corpus of the catalog.
            variants: Chooses the two sides of text in several languages, and counts skipped units.

        Yields:
            Rows. No text of a row contains a line feed.
        """

    def _paths(self) -> list[str]:
        """Return the paths in the recipe, in the order of `path_keys`."""
        paths: list[str] = []
        for key in self.path_keys:
            value = getattr(self, key)
            if isinstance(value, str):
                paths.append(value)
            elif value is not None:  # several references, for example
                paths += value
        return paths


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
            path: The file.
            src: The source language.
            tgt: The target language.
            columns: The columns of source and target; empty to detect them by the languages.
            dialect: Keys of the recipe that are not detected.
        """
        if not columns:
            names = cls.names_in(path, dialect)
            remedy = f"pass --{cls.key} {path}:SOURCE,TARGET"
            sides = choose_columns(last_parts(names), (src, tgt), path, remedy, names)
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
            if names and column not in names:
                raise UserError(
                    f"{path} has no texts in {column!r}{did_you_mean(column, names)}; it has "
                    f"{join_names(names)}"
                )

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the columns, if they are named."""
        return super().identity(hashes) + list(self.columns or ())


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
