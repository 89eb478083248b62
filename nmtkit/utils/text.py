"""Text helpers: escapes for untrusted text, shortened values, lists, counts, durations.

A terminal obeys control characters, and U+202E reverses the text after it, in a browser too.
"""

import json
import re
from collections.abc import Iterable, Mapping
from unicodedata import category

MAX_LISTED = 12  # names in a message
# Categories of Unicode that are printed as code points: controls, formats, private use, surrogates,
# line separators.
ESCAPED = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
JOINERS = "\u200c\u200d"  # part of the spelling of Persian, Hindi and emoji
INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")  # controls, formats and spaces
# Other characters that Unicode lists as ignorable by default: joiners, fillers of Hangul, variation
# selectors, reserved code points; and the Braille pattern without a dot.
IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Replace characters that are invisible, or that a terminal obeys, by code points: <U+202E>."""
    if text.isprintable():
        return text
    parts = []
    for character in text:
        parts.append(f"<U+{ord(character):04X}>" if _is_escaped(character) else character)
    return "".join(parts)


def visible_json(text: str) -> str:
    r"""Replace the characters that `visible` replaces by JSON's escapes, such as \u202e."""
    if text.isprintable():
        return text
    parts = []
    for character in text:
        # Line feeds are only between values: inside a string, JSON does not allow them.
        if character != "\n" and _is_escaped(character):
            character = json.dumps(character)[1:-1]  # noqa: PLW2901
        parts.append(character)
    return "".join(parts)


def _is_escaped(character: str) -> bool:
    return character not in JOINERS and category(character) in ESCAPED


def is_blank(text: str) -> bool:
    """Return whether a text is empty, or all of its characters are spaces or invisible."""
    for character in text:
        if category(character) not in INVISIBLE and not IGNORABLE.match(character):
            return False
    return True


def shorten(text: str, max_length: int = 60) -> str:
    """Return a text on one line; if it is too long, its beginning and three dots."""
    text = visible(text)
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def quote(value: object) -> str:
    """Return an untrusted value for a message: its `repr`, on one line and shortened."""
    return shorten(repr(value))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 line", "1,200 lines"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def join_names(names: Iterable[str]) -> str:
    """Return names, or the first few of many, separated by commas."""
    names = list(names)
    if not names:
        return "none"
    text = ", ".join(names[:MAX_LISTED])
    if len(names) > MAX_LISTED:
        text += f" and {len(names) - MAX_LISTED:,} more"
    return text


def describe_differences(
    ours: Mapping[str, object], theirs: Mapping[str, object]
) -> tuple[str, str] | None:
    """Describe the values of two mappings that differ, such as ("d_k = 2", "d_k = 4").

    Args:
        ours: Values by key, ready for JSON.
        theirs: Values of the same keys.

    Returns:
        The values of both mappings, or None if they are equal.
    """
    our_values = []
    their_values = []
    for key, value in ours.items():
        if value != theirs[key]:
            our_values.append(f"{key} = {shorten(json.dumps(value))}")
            their_values.append(f"{key} = {shorten(json.dumps(theirs[key]))}")
    if not our_values:
        return None
    return ", ".join(our_values), ", ".join(their_values)


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit: "90 s", "25 min", "14 h" or "6 days"."""
    if seconds < 180:
        return f"{seconds:.0f} s"
    if seconds < 180 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 86_400:,.0f} days"


def round_estimate(number: float) -> int:
    """Round a number to two digits that count, as an estimate has no more: 394,301 to 390,000."""
    return int(float(f"{number:.1e}")) if number >= 100 else round(number)


def rounded_duration(seconds: float) -> str:
    """Return an estimated duration with at most two digits: "1 min", "45 min", "14 h", "260 days".

    Less than a minute is never promised.
    """
    if seconds < 90 * 60:
        return f"{max(1, round(seconds / 60))} min"
    if seconds < 72 * 3_600:
        return f"{round(seconds / 3_600)} h"
    return f"{round_estimate(seconds / 86_400):,} days"
