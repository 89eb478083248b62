"""JSON Lines: an object a line, with a text for each language or for each side."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nmtkit.errors import UserError, shown
from nmtkit.sources.source import OfColumns, Row
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import Variants


class Jsonl(OfColumns):
    """Objects whose keys are languages, also within another one: {"translation": {"en": ...}}."""

    key = "jsonl"
    path_keys = ("jsonl",)
    title = "JSON lines"
    form = "JSON"

    jsonl: str

    @classmethod
    def recognizes(cls, head: str) -> bool:
        lines = [line for line in head.split("\n")[:20] if line.strip()]
        try:
            return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
        except (ValueError, RecursionError):
            return False

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the texts of both sides; a line feed becomes a space."""
        [text] = texts
        for number, line in enumerate(read_lines(text), 1):
            if not line.strip():
                continue
            where = f"{text}, line {number:,}"
            if pair := variants.choose(self._unit(_texts(line, where), variants), where):
                yield tuple(side.replace("\n", " ") for side in pair)

    def _unit(self, values: dict[str, str], variants: Variants) -> list[tuple[str, str]]:
        """Return the texts of an object by languages, or by whatever its keys are."""
        if self.columns is None:
            # What is in `translation` comes first, and other nested texts last.
            keys = sorted(values, key=lambda key: (key[:12] != "translation.", key.count(".")))
            return [(key.rpartition(".")[2], values[key]) for key in keys]
        sides = zip(self.columns, map(str, variants.langs), strict=True)
        named = [(lang, values[key]) for key, lang in sides if key in values]
        return named or list(values.items())


def _texts(line: str, where: str) -> dict[str, str]:
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError(f"{shown(values)} is not an object")
        texts = _flat(values)
        "".join(texts.values()).encode()  # JSON can hold half a character
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not an object of JSON: {error}; correct it") from None
    return texts


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, str):
            flat[prefix + key] = value
        elif isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
    return flat
