"""TOML of limited size and depth: recipes may come from anywhere."""

import re
import tomllib
from pathlib import Path
from typing import Any

from nmtkit.store.records import DamagedError, read_utf8
from nmtkit.utils.errors import UserError

MAX_BYTES = 2**16  # of a recipe file; the recipes that come with nmtkit have 3,000
MAX_DEPTH = 100  # of nested tables and lists; recipes have 4


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: It is too large, not UTF-8, or not TOML of a reasonable depth.
    """
    try:
        return parse_toml(read_utf8(path, MAX_BYTES).removeprefix("\ufeff"))
    except DamagedError as error:
        raise UserError(f"{error.reason}; pass a recipe in TOML, saved as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}; fix the file") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise TOMLDecodeError also for text that Python cannot parse."""
    # Python cannot print the numbers of the first kind, and cannot parse those of the second.
    if re.search("0[xob][0-9A-Fa-f_]{100}|[0-9_]{4300}", text):
        raise tomllib.TOMLDecodeError("a number has too many digits")
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("brackets are nested too deeply") from None
    # tomllib reads tables of any depth, such as [a.a.a], but functions that walk through them
    # recurse.
    if _is_deeper(document, MAX_DEPTH):
        raise tomllib.TOMLDecodeError(f"tables are nested more than {MAX_DEPTH} deep")
    return document


def _is_deeper(document: Any, max_depth: int) -> bool:
    """Return whether tables and lists are nested more than `max_depth` deep."""
    # Level by level instead of recursively, since the depth is what may be too large.
    values = [document]
    for _ in range(max_depth):
        inner: list[Any] = []
        for value in values:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        values = inner
    return any(isinstance(value, dict | list) for value in values)
