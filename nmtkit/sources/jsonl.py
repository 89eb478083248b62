"""JSON Lines: one object per line, with one text per language or side."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nmtkit.sources.sides import choose_columns, find_sides
from nmtkit.sources.source import DETECTED, ColumnSource, Row, expand_path, last_parts
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import join_names, quote

FIRST_LINES = 100  # from which keys are detected


class Jsonl(ColumnSource):
    """Objects whose keys are languages, also in nested objects: {"translation": {"en": ...}}."""

    key = "jsonl"
    path_keys = ("jsonl",)
    title = "JSON lines"
    to_plain = "`jq -r .en FILE > NEW_FILE` extracts the key en"
    form = "JSON"

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
    def names_in(cls, path: str, _dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the keys of texts in the first lines of a user's file."""
        return _first_keys(TextFile(expand_path(path)))

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the texts of both sides; line feeds become spaces. See `Source.rows`."""
        [text] = texts
        keys = _first_keys(text)
        for column in self.columns or ():
            if keys and column not in keys:
                raise UserError(f"{text} has no texts in {column}; it has {join_names(keys)}")
        for where, values in _objects(text):
            pair = variants.choose(self._unit(values, variants, where), where)
            if pair is not None:
                src, tgt = pair
                yield src.replace("\n", " "), tgt.replace("\n", " ")

    def _unit(
        self, values: dict[str, str | None], variants: Variants, where: str
    ) -> list[tuple[str, str]]:
        """Return the texts of an object with their languages.

        Args:
            values: The texts by key. None is a null, which counts as an empty text.
            variants: The languages of the recipe.
            where: The place of the object, for messages.
        """
        if self.columns is not None:
            src, tgt = variants.langs
            src_column, tgt_column = self.columns
            return [
                (str(src), values.get(src_column) or ""),
                (str(tgt), values.get(tgt_column) or ""),
            ]
        # Keys are detected in every object: objects of different languages may be mixed.
        texts = {key: text for key, text in values.items() if text is not None}
        names = last_parts(texts)
        if all(find_sides(names, variants.langs)):
            # Fail if there are several candidates for a side.
            remedy = 'set two of them in the recipe, as in columns = ["SOURCE", "TARGET"]'
            choose_columns(names, variants.langs, where, remedy, list(texts))
        return list(zip(names, texts.values(), strict=True))


def _first_keys(text: TextFile) -> list[str]:
    """Return the keys of texts in the first lines; nested ones are written with dots."""
    keys: dict[str, None] = {}
    # The first object may lack a key.
    for _, values in islice(_objects(text), FIRST_LINES):
        keys.update(dict.fromkeys(values))
    return list(keys)


def _objects(text: TextFile) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Yield the texts of each object by their keys, and the place of the object."""
    for number, line in enumerate(read_lines(text), 1):
        if line.strip():
            where = f"{text}, line {number:,}"
            yield where, _texts(line, where)


def _texts(line: str, where: str) -> dict[str, str | None]:
    """Parse the object in a line, which `where` describes, and return its texts by their keys."""
    # The first line of a file that is one array, on one line or on many.
    if line.lstrip().startswith("["):
        raise UserError(
            f"{where} starts a JSON array, not an object; write one object per line, as `jq -c "
            "'.[]' FILE > NEW_FILE` does"
        )
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError(f"{quote(values)} is not an object")
        texts = _flat(values)
        # Escapes such as \ud800 are half a character, which cannot be written to a file.
        "".join(filter(None, texts.values())).encode()
    except (ValueError, RecursionError) as error:
        # Python refuses numbers of thousands of digits with a hint for programmers.
        reason = str(error).partition("; use sys.")[0]
        raise UserError(f"{where} is not a JSON object: {reason}; correct it") from None
    return texts


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str | None]:
    """Return the texts and nulls of an object and of the objects in it.

    Args:
        values: The object.
        prefix: The keys of the objects around it, each with a dot.
    """
    flat: dict[str, str | None] = {}
    for key, value in values.items():
        if value is None or isinstance(value, str):
            flat[prefix + key] = value
        elif isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
    return flat
