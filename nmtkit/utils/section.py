"""The base class of the sections of recipes and studies, and types of their values."""

import difflib
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

MAX_INT = 2**63 - 1  # as in TOML
MAX_HINTS = 3  # words in a hint
Count = Annotated[int, Field(ge=1, le=MAX_INT)]
Positive = Annotated[float, Field(gt=0)]
# The number of times that an epoch of training draws a corpus.
Weight = Annotated[float, Field(ge=0.01, le=100)]
# The name of a test set, and of a folder with its translations.
SET_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint at the words that begin with a word, else at the most similar one.

    Args:
        known: The words to choose from.

    Returns:
        The hint in parentheses; an empty string if no word is similar.
    """
    word = word.lower()
    words = {other.lower(): other for other in known}
    matches = [other for other in words if word and other.startswith(word)][:MAX_HINTS]
    if not matches:
        matches = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    matches = [words[match] for match in matches]
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


class Section(BaseModel):
    """A frozen table of values with strict types. Unknown keys are refused."""

    # Validators are built at their first use: a command imports all kinds of sources and reads one.
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _forbid_unknown_keys(cls, table: object) -> object:
        """Refuse unknown keys like `extra="forbid"`, with a hint at the most similar key."""
        if not isinstance(table, dict):
            return table
        # pydantic's own check would come without a hint.
        for key, value in table.items():
            if key not in cls.model_fields:
                hint = did_you_mean(key, cls.model_fields)
                error = PydanticCustomError("unknown_key", "Unknown key{hint}", {"hint": hint})
                raise ValidationError.from_exception_data(
                    cls.__name__, [InitErrorDetails(type=error, loc=(key,), input=value)]
                )
        return table
