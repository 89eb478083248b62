"""Validation of recipes and studies, and the first mistake in them as one sentence."""

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from nmtkit.config.overrides import set_override
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Section
from nmtkit.utils.text import shorten

# Messages for errors that pydantic describes in its own terms, by their type.
MESSAGES = {
    "tuple_type": "expected a list",
    "too_short": "expected at least {min_length} values, got {actual_length}",
    "too_long": "expected at most {max_length} values, got {actual_length}",
    "union_tag_invalid": "{tag!r} is not a {discriminator}; use one of {expected_tags}",
}

AnySection = TypeVar("AnySection", bound=Section)


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
        UserError: They are not valid. With overrides, which may be long, the reason comes first.
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
    """Return the first problem that pydantic found after its place: `[model] n_layers = 0: ...`."""
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
    # The keys of [subword] depend on its method, which pydantic puts in front of them.
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
        document: The recipe.
    """
    place = ""
    value = document
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
            # An item that is missing has a place as well.
            value = value[part] if part < len(value) else None
        elif isinstance(value, dict):
            # A key that the recipe lacks comes last. The tag of a union, its method, is not a key.
            if part not in value and (part != location[-1] or part == value.get("method")):
                continue
            key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)
            place += f".{shorten(key)}"
            value = value.get(part)
    section, _, inner = place.removeprefix(".").partition(".")
    is_table = isinstance(document.get(location[0]), dict)
    return f"[{section}] {inner}".rstrip() if is_table else section
