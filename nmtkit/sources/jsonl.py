"""JSON Lines: one object per line, with one text per language or side."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nmtkit.sources.sides import Variants, choose_columns, find_sides
from nmtkit.sources.source import (
    DETECTED,
    TEXT,
    ColumnSource,
    Row,
    describe_columns,
    expand_path,
    last_parts,
)
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

FIRST_LINES = 100  # keys are detected in them
JSON_TYPES = {str: TEXT, list: "list", int: "number", float: "number", bool: "true or false"}


class Jsonl(ColumnSource):
    """Objects whose keys are languages, also in nested objects: {"translation": {"en": ...}}."""

    key = "jsonl"
    path_keys = ("jsonl",)
    title = "JSON lines"
    to_plain = "`jq -r .en FILE > NEW_FILE` extracts the key en"
    form = "JSON"
    has_option = True

    jsonl: str

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether the first lines of a text are objects."""
        lines = [line for line in head.split("\n")[:20] if line.strip()]
        try:
            return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
        except (ValueError, RecursionError):
            return False

    @classmethod
    def types_in(cls, path: str) -> dict[str, str]:
        """Return the keys in the first lines of a user's file with the types of their values."""
        return _first_types(TextFile(expand_path(path)))

    @classmethod
    def sample_in(
        cls, path: str, names: Sequence[str], _dialect: Mapping[str, Any] = DETECTED
    ) -> list[Sequence[str]]:
        """Return the texts in the first lines; see `Source.sample_in`."""
        rows: list[Sequence[str]] = []
        for _, values in islice(_objects(TextFile(expand_path(path))), FIRST_LINES):
            rows.append([_text(values.get(name)) for name in names])
        return rows

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the texts of both sides; line feeds become spaces. See `Source.rows`."""
        [text] = texts
        types = _first_types(text)
        for column in self.columns or ():
            if types and types.get(column) != TEXT:
                raise UserError(
                    f"{text} has no texts in {column}; it has {describe_columns(types)}"
                )
        for where, values in _objects(text):
            pair = variants.choose(self._unit(values, variants, where), where)
            if pair is not None:
                src, tgt = pair
                yield src.replace("\n", " "), tgt.replace("\n", " ")

    def _unit(
        self, values: dict[str, object], variants: Variants, where: str
    ) -> list[tuple[str, str]]:
        """Return the texts of an object with their languages.

        Args:
            values: The values by key. In a column of the recipe, those without text are empty.
            variants: The languages of the recipe.
            where: The place of the object, for messages.
        """
        if self.columns is not None:
            src, tgt = variants.langs
            src_column, tgt_column = self.columns
            return [
                (str(src), _text(values.get(src_column))),
                (str(tgt), _text(values.get(tgt_column))),
            ]
        # Keys are detected in every object: objects of different languages may be mixed.
        texts = {key: text for key, text in values.items() if isinstance(text, str)}
        names = last_parts(texts)
        if all(find_sides(names, variants.langs)):
            # Fail if there are several candidates for a side.
            remedy = 'set two of them in the recipe, as in columns = ["SOURCE", "TARGET"]'
            choose_columns(names, variants.langs, where, remedy, list(texts))
        return list(zip(names, texts.values(), strict=True))


def _first_types(text: TextFile) -> dict[str, str]:
    """Return the keys in the first lines with the types of their values.

    Nested keys are written with dots, and a null counts as text.
    """
    types: dict[str, str] = {}
    # The first object may lack a key.
    for _, values in islice(_objects(text), FIRST_LINES):
        for key, value in values.items():
            value_type = TEXT if value is None else JSON_TYPES[type(value)]
            if value_type == TEXT:
                types[key] = TEXT
            else:
                types.setdefault(key, value_type)
    return types


def _text(value: object) -> str:
    """Return a value if it is a text, or else an empty one."""
    return value if isinstance(value, str) else ""


def _objects(text: TextFile) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the values of the object in each line by their keys, after the place of the object.

    Raises:
        UserError: A line is not an object.
    """
    for number, line in enumerate(read_lines(text), 1):
        if not line.strip():
            continue
        where = f"{text}, line {number:,}"
        # The first line of a file that is one array, on one line or on many.
        if line.lstrip().startswith("["):
            raise UserError(
                f"{where} starts a JSON array, not an object; write one object per line, as `jq "
                "-c '.[]' FILE > NEW_FILE` does"
            )
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise ValueError(f"{quote(values)} is not an object")
            flat = _flat(values)
            # Lone surrogates such as \ud800 cannot be encoded.
            "".join(map(_text, flat.values())).encode()
        except (ValueError, RecursionError) as error:
            # Python refuses numbers of thousands of digits with a hint for programmers.
            reason = str(error).partition("; use sys.")[0]
            raise UserError(f"{where} is not a JSON object: {reason}; correct it") from None
        yield where, flat


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of an object and of the objects in it.

    Args:
        values: The object.
        prefix: The keys of the objects around it, each with a dot.
    """
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
