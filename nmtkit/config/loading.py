"""Recipe files: finding, reading and validating them, overrides of their values (`--set`)."""

import json
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from nmtkit.config.recipe import Recipe
from nmtkit.sources.kinds import KINDS
from nmtkit.store.records import DamagedError, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Section, did_you_mean
from nmtkit.utils.text import shorten

MAX_TOML_BYTES = 2**16  # of a recipe file; the recipes that come with nmtkit have 3,000
MAX_TOML_DEPTH = 100  # of nested tables and lists; recipes have 4
# Keys whose values are paths: of sources, of [subword], and of [training].
PATH_KEYS = {"path", "start_from"}.union(*(kind.path_keys for kind in KINDS))
# Messages for errors that pydantic describes in its own terms, by their type.
MESSAGES = {
    "tuple_type": "expected a list",
    "too_short": "expected at least {min_length} values, got {actual_length}",
    "too_long": "expected at most {max_length} values, got {actual_length}",
    "union_tag_invalid": "{tag!r} is not a {discriminator}; use one of {expected_tags}",
}
COMMANDS = {"recipe": "run", "study": "study"}  # that run a file, by its kind

AnySection = TypeVar("AnySection", bound=Section)


class NoFileError(UserError):
    """There is no such recipe or study."""


# Finding files


def recipes_dir() -> Path:
    """Return the folder of nmtkit's own recipes: `pipelines/`, or the wheel's copy of it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "pipelines"
    return inside if inside.is_dir() else package.parent / "pipelines"


def studies_dir() -> Path:
    """Return the folder of nmtkit's own studies."""
    return recipes_dir() / "studies"


def bundled_recipes() -> list[Path]:
    """Return the files of nmtkit's own recipes."""
    return sorted(recipes_dir().glob("*.toml"))


def recipe_path(name_or_path: str) -> Path:
    """Return the file of a recipe, by bare name or by path."""
    return find_file("recipe", name_or_path, [recipes_dir()])


def find_file(kind: str, name_or_path: str, folders: Sequence[Path]) -> Path:
    """Find a TOML file.

    Args:
        kind: "recipe" or "study", for the message.
        name_or_path: A path (it ends in .toml or contains a separator), or the bare name of a
            file in `folders`.
        folders: The folders of files that are found by name.

    Raises:
        NoFileError: There is no such file.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml" or os.sep in name_or_path:
        candidates = [path]
    else:
        candidates = [folder / f"{path}.toml" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise UserError(f"{name_or_path} is a folder, not a {kind}; pass the path of a TOML file")
    if kind in COMMANDS and (_other_folder(kind) / f"{name_or_path}.toml").is_file():
        raise other_kind(kind, name_or_path)
    # A common mistake is to name one's own file without its path.
    own_file = f"./{path.stem}.toml"
    if Path(own_file).is_file():
        hint = f" (did you mean {own_file!r}?)"
    else:
        known = [f"./{file}" for file in Path().glob("*.toml")]
        for folder in folders:
            known += [file.stem for file in folder.glob("*.toml")]
        # The suffix alone makes no file similar.
        similar = [name for name in known if did_you_mean(path.stem, [Path(name).stem])]
        hint = did_you_mean(name_or_path, similar)
    if candidates == [path]:
        raise NoFileError(
            f"{name_or_path} does not exist{hint}; correct the path, or omit .toml for a {kind} "
            "that comes with nmtkit (see `nmtkit recipes`)"
        )
    raise NoFileError(
        f"unknown {kind} {name_or_path!r}{hint}; run `nmtkit recipes` to list those that come "
        "with nmtkit, or pass the path of your own file, such as ./mine.toml"
    )


def _other_folder(kind: str) -> Path:
    """Return the folder of nmtkit's own files of the other kind."""
    return studies_dir() if kind == "recipe" else recipes_dir()


def other_kind(kind: str, name_or_path: str) -> UserError:
    """Return the error for a study where a recipe is expected, or the other way round.

    Args:
        kind: The expected kind, "recipe" or "study".
    """
    other = "study" if kind == "recipe" else "recipe"
    return UserError(
        f"{name_or_path} is a {other}, not a {kind}; run `nmtkit {COMMANDS[other]} {name_or_path}`"
    )


# Reading and validating


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name_or_path: The bare name of one of nmtkit's own recipes, or the path of a file.
        overrides: Values of `--set`: section.key=value.

    Raises:
        UserError: The recipe does not exist, or is not valid.
    """
    path = recipe_path(name_or_path)
    document = read_toml(path)
    if "rows" in document:
        raise other_kind("recipe", name_or_path)
    return _recipe(document, path, overrides)


def parse_recipe(text: str, path: Path) -> Recipe:
    """Parse the text of a recipe that will be the file `path`."""
    return _recipe(parse_toml(text), path)


def _recipe(document: dict[str, Any], path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Validate the tables of a recipe.

    Args:
        path: The file of the recipe. Paths in the recipe are relative to it.
        overrides: Values of `--set`.
    """
    document = with_absolute_files(document, path.resolve().parent)
    return validate(Recipe, document, overrides, origin=str(path))


def validate(
    schema: type[AnySection], document: dict[str, Any], overrides: Sequence[str], origin: str = ""
) -> AnySection:
    """Validate the tables of a recipe or a study.

    Args:
        schema: The class of the recipe or the study.
        document: The tables; overrides change it.
        overrides: Values of `--set`.
        origin: The file, for messages.

    Raises:
        UserError: They are not valid. Overrides may be long, so the reason comes before them.
    """
    for override in overrides:
        set_override(document, override, schema)
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        problem = _first_problem(error, document)
    if not overrides:
        raise UserError(f"{origin}: {problem}")
    # The overrides are part of the message, since the mistake may be in one of them.
    typed = " ".join(f"--set {shorten(override, 200)}" for override in overrides)
    where = f"in {origin} with {typed}" if origin else f"in {typed}"
    raise UserError(f"{problem} ({where})")


def _first_problem(error: ValidationError, document: dict[str, Any]) -> str:
    """Return the first problem that pydantic found, with its key: `[model] n_layers = 0: ...`."""
    errors = error.errors(include_url=False)
    first = errors[0]
    # All missing keys are reported at once: a new recipe often lacks several.
    if first["type"] == "missing":
        missing = []
        for problem in errors:
            if problem["type"] == "missing":
                missing.append(_key_path(problem["loc"], document))
        return f"{', '.join(missing)}: {'Fields' if len(missing) > 1 else 'Field'} required"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in MESSAGES:
        message = MESSAGES[first["type"]].format(**first.get("ctx", {}))
    # The keys of [subword] depend on its method, and pydantic puts it in front of them.
    if first["type"] == "unknown_key" and first["loc"][0] == "subword":
        message = message.replace("key", f'key with method = "{first["loc"][1]}"', 1)
    message = shorten(message, 300)
    if not first["loc"]:
        return message
    where = _key_path(first["loc"], document)
    if not isinstance(first["input"], dict):
        where += f" = {shorten(json.dumps(first['input'], ensure_ascii=False, default=str))}"
    return f"{where}: {message}"


def _key_path(location: tuple[int | str, ...], document: Any) -> str:
    """Return a location of pydantic's as the recipe spells it: `[corpus] train[0].src`.

    Args:
        location: Keys and indices; the tag of a union is an additional key.
    """
    key_path = ""
    value = document
    for part in location:
        if isinstance(part, int):
            key_path += f"[{part}]"
            # An item that is missing has a path as well.
            value = value[part] if part < len(value) else None
        elif isinstance(value, dict):
            # A key that the recipe lacks comes last. The tag of a union, its method, is not a key.
            if part not in value and (part != location[-1] or part == value.get("method")):
                continue
            key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)
            key_path += f".{shorten(key)}"
            value = value.get(part)
    section, _, inner = key_path.removeprefix(".").partition(".")
    is_table = isinstance(document.get(location[0]), dict)
    return f"[{section}] {inner}".rstrip() if is_table else section


# Overrides, and paths of the user's own files


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
    if not equals or not all(parts) or is_bare or len(parts) > MAX_TOML_DEPTH:
        hint = ""
        for name, field in schema.model_fields.items():
            keys = getattr(field.annotation, "model_fields", ())  # of a section
            if is_bare and equals and parts[0] in keys:
                hint = f"; did you mean {name}.{shorten(override)}?"
        raise UserError(f"--set takes section.key=value, not {shorten(override)!r}{hint}")
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
    """
    key, _, text = override.partition("=")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    absolute = with_absolute_files(value, folder, key.strip().split(".")[-1] in PATH_KEYS)
    return override if absolute == value else f"{key}={toml_value(absolute)}"


def with_absolute_files(value: Any, folder: Path, is_path: bool = False) -> Any:
    """Resolve the user's own files relative to the recipe that names them.

    Args:
        value: A value of TOML; tables and lists are walked through.
        is_path: The key of the value is one of `PATH_KEYS`.
    """
    if isinstance(value, list):
        return [with_absolute_files(item, folder, is_path) for item in value]
    if isinstance(value, dict) and not is_path:
        table = {}
        for key, item in value.items():
            table[key] = with_absolute_files(item, folder, key in PATH_KEYS)
        return table
    # "$NAME/..." begins with an environment variable. It is read later.
    if is_path and isinstance(value, str) and not value.startswith("$"):
        return str(folder / value)
    return value


def toml_value(value: Any) -> str:
    """Return a value of TOML on one line."""
    if isinstance(value, dict):
        pairs = [f"{json.dumps(key)} = {toml_value(item)}" for key, item in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        items = [toml_value(item) for item in value]
        return f"[{', '.join(items)}]"
    if isinstance(value, str):
        # The escapes of JSON are those of TOML, but JSON does not escape DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


# TOML of limited size and depth, since recipes may come from anywhere


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: It is too large, not UTF-8, or not TOML of a reasonable depth.
    """
    try:
        return parse_toml(read_utf8(path, MAX_TOML_BYTES).removeprefix("\ufeff"))
    except DamagedError as error:
        raise UserError(f"{error.reason}; pass a recipe in TOML, saved as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        remedy = "fix the file" if path.suffix == ".toml" else "pass a recipe in TOML"
        raise UserError(f"{path} is not valid TOML: {error}; {remedy}") from None


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
    if _is_deeper(document, MAX_TOML_DEPTH):
        raise tomllib.TOMLDecodeError(f"tables are nested more than {MAX_TOML_DEPTH} deep")
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
