"""Overrides of values in a recipe (`--set`), and the paths of the user's own files in it."""

import json
import tomllib
from pathlib import Path
from typing import Any

from nmtkit.config.toml import MAX_DEPTH, parse_toml
from nmtkit.sources.kinds import KINDS
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Section
from nmtkit.utils.text import shorten

# Keys whose values are paths: of sources, of [subword], and of [training].
PATH_KEYS = {"path", "start_from"}.union(*(kind.path_keys for kind in KINDS))


def set_override(document: dict[str, Any], override: str, schema: type[Section]) -> None:
    """Set the value of one `--set` in the tables of a recipe.

    Args:
        document: The tables; changed.
        override: section.key=value, with a value of TOML or a bare word.
        schema: The class of the recipe or the study; its own fields need no section.

    Raises:
        UserError: The override is not of this form, or its section is a value.
    """
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    is_bare = len(parts) == 1 and parts[0] not in schema.model_fields
    if not equals or not all(parts) or is_bare or len(parts) > MAX_DEPTH:
        raise UserError(f"--set takes section.key=value, not {shorten(override)!r}")
    try:
        parsed = parse_toml(f"value = {text}")
    except tomllib.TOMLDecodeError:
        parsed = {"value": text.strip()}  # a bare word is a string: --set model.norm=pre
    if len(parsed) > 1:
        raise UserError(
            f"--set takes one value, got several in {shorten(override)!r}; pass --set once per "
            "value"
        )
    table = document
    for part in parts[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(
                f"{shorten(part)!r} is a value, not a section (in --set {shorten(override)!r})"
            )
        table = inner
    table[parts[-1]] = parsed["value"]


def absolute_override(override: str, folder: Path) -> str:
    """Return an override with absolute paths of the user's own files.

    Args:
        override: section.key=value, as for `--set`.
        folder: The folder that paths in it are relative to.
    """
    key, _, text = override.partition("=")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    absolute = with_absolute_files(value, folder, key.strip().split(".")[-1] in PATH_KEYS)
    return override if absolute == value else f"{key}={_toml(absolute)}"


def with_absolute_files(value: Any, folder: Path, is_path: bool = False) -> Any:
    """Resolve the user's own files relative to the recipe that names them.

    Args:
        value: A value of TOML; tables and lists are walked through.
        folder: The folder of the recipe.
        is_path: The key of the value is one of `PATH_KEYS`.
    """
    if isinstance(value, list):
        return [with_absolute_files(item, folder, is_path) for item in value]
    if isinstance(value, dict) and not is_path:
        table = {}
        for key, item in value.items():
            table[key] = with_absolute_files(item, folder, key in PATH_KEYS)
        return table
    # "$NAME/..." begins with an environment variable, which is read later.
    if is_path and isinstance(value, str) and not value.startswith("$"):
        return str(folder / value)
    return value


def _toml(value: Any) -> str:
    """Return a value of TOML on one line."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        items = [_toml(item) for item in value]
        return f"[{', '.join(items)}]"
    if isinstance(value, str):
        # The escapes of JSON are those of TOML, but JSON does not escape DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)
