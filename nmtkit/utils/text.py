"""Text as it can be shown: what would be unseen, or act on its surroundings, is named.

A terminal obeys control characters, and U+202E turns round what follows it, in a browser too.
"""

import json
import re
from unicodedata import category

UNSEEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")  # controls, formats, private use, line separators
JOINERS = "\u200c\u200d"  # part of how Persian, Hindi and emoji are spelt
INVISIBLE = ("Cc", "Cf", "Zl", "Zp", "Zs")  # controls, formats and spaces
# What else Unicode calls ignorable by default: joiners, fillers of Hangul, variation selectors,
# reserved code points; and the Braille pattern without a dot.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\ufff0-\ufff8\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Return `text` with each character that is unseen as its code point, such as <U+202E>."""
    if text.isprintable():
        return text
    return "".join(
        f"<U+{ord(character):04X}>" if _is_unseen(character) else character for character in text
    )


def visible_json(text: str) -> str:
    """Return JSON that means the same, in which each character that is unseen is escaped."""
    if text.isprintable():
        return text
    # Line feeds are only between values: inside a string, JSON does not allow them.
    return "".join(
        json.dumps(character)[1:-1] if character != "\n" and _is_unseen(character) else character
        for character in text
    )


def _is_unseen(character: str) -> bool:
    return character not in JOINERS and category(character) in UNSEEN


def is_blank(text: str) -> bool:
    """Return whether `text` is empty, or all of its characters are spaces or invisible."""
    return all(category(each) in INVISIBLE or _IGNORABLE.match(each) for each in text)
