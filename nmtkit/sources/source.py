"""What every kind of source is: keys of a recipe, a name, an identity, and pairs.

A new kind is a subclass in a file of its own, and a line in `sources/kinds.py`.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from nmtkit.sources.sides import check_order
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants, listed, recorded_names
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME, Section, Weight, did_you_mean

Pair = tuple[str, str]
Row = tuple[str, ...]  # a sentence, and its translation if there is one, or several


class Source(Section, ABC):
    """Text from outside the catalog; without a `name` it is called by the names of its files."""

    key: ClassVar[str]  # that tables of this kind have, and of no other
    path_keys: ClassVar[tuple[str, ...]] = ()  # whose values are paths
    title: ClassVar[str]  # what messages call a text of this kind
    form: ClassVar[str] = "plain text"  # as `sources.kinds` calls it
    trees: ClassVar[tuple[bool, ...]] = (False,)  # whether it has trees, or may have them

    name: Annotated[str, Field(pattern=SET_NAME)] | None = None
    weight: Weight = 1.0  # of training text

    @classmethod
    def from_file(
        cls, path: str, _src: Language, _tgt: Language, columns: Sequence[str]
    ) -> "Source":
        """Return the source of a user's file, with the columns that the user named."""
        if columns:
            raise UserError(f"{path} has no columns; omit :{','.join(columns)}")
        return cls.model_validate({cls.key: path})

    @classmethod
    def names_in(cls, path: str) -> Sequence[str]:
        """Return the names of the texts in a user's file, from which languages are detected."""
        source = cls.model_validate({cls.key: path})
        return recorded_names(partial(source.rows, source.files()))

    @classmethod
    def check_columns(cls, path: str, columns: Sequence[str]) -> None:
        """Refuse names of columns that a user's file does not have.

        Args:
            path: The file.
            columns: The names that the user typed.

        Raises:
            UserError: A name is misspelt.
        """

    def description(self) -> str:
        """Return how the text is read, in a few words."""
        return self.title

    @classmethod
    def recognizes(cls, _head: str) -> bool:
        """Return whether a text that begins so is one of this kind."""
        return False

    def own_name(self) -> str:
        return Path(self._paths()[0]).name

    def files(self) -> list[TextFile]:
        return [TextFile(own_path(path)) for path in self._paths()]

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return what identifies its text, given the hashes of its files."""
        return [self.key, *hashes]

    def check(self, src: Language, tgt: Language) -> None:
        """Raise ValueError unless its keys agree with the languages of the recipe."""

    @abstractmethod
    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield its sentences with their translations, in order and in bounded memory.

        No text of a row contains a line feed. `texts` are its files, or downloads of the catalog.
        """

    def _paths(self) -> list[str]:
        values = [getattr(self, key) for key in self.path_keys]
        return [each for one in values for each in ([one] if isinstance(one, str) else one or ())]


class ColumnSource(Source):
    """Rows of named texts, of which the recipe may name the two that are read."""

    # Of a sentence and of its translation, by default those that are called as the languages;
    # nested ones are written with dots, as in "translation.en".
    columns: Annotated[tuple[str, str], Field(strict=False)] | None = None

    @classmethod
    def from_file(cls, path: str, src: Language, tgt: Language, columns: Sequence[str]) -> "Source":
        if not columns:
            names = cls.names_in(path)
            remedy = f"pass --{cls.key} {path}:SOURCE,TARGET"
            sides = Variants(src, tgt).choose_columns(last_parts(names), path, remedy, names)
            columns = [names[position] for position in sides]
        elif len(columns) != 2 or len(set(columns)) != 2:
            raise UserError(
                f"{path}: expected the columns of source and target, got {listed(columns)}; pass "
                f"--{cls.key} {path}:SOURCE,TARGET"
            )
        check_order(last_parts(columns), (src, tgt), f"--{cls.key} {path}:{','.join(columns)}")
        return cls.model_validate({cls.key: path, "columns": tuple(columns)})

    @classmethod
    def check_columns(cls, path: str, columns: Sequence[str]) -> None:
        names = cls.names_in(path)
        for column in columns:
            if names and column not in names:
                raise UserError(
                    f"{path} has no texts in {column!r}{did_you_mean(column, names)}; it has "
                    f"{listed(names)}"
                )

    def identity(self, hashes: Sequence[str]) -> list[str]:
        return [*super().identity(hashes), *(self.columns or ())]


def last_parts(names: Iterable[str]) -> list[str]:
    """Return the names of nested texts without those that they are in: "en" of "text.en"."""
    return [name.rpartition(".")[2] for name in names]


def own_path(path: str) -> Path:
    """Resolve a variable of the environment that `path` begins with."""
    if not path.startswith("$"):
        return Path(path)
    variable, _, rest = path.partition("/")
    folder = os.path.expandvars(variable)
    if not folder or folder.startswith("$"):
        raise UserError(f"the environment has no {variable[1:]}, the folder of {path}; set it")
    return Path(folder, rest)


def combined(hashes: Sequence[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
