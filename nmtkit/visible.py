"""Text as it can be shown: what would be unseen, or act on its surroundings, is named.

A terminal obeys control characters, and U+202E turns round what follows it, in a browser too.
"""

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
        character
        if character in JOINERS or category(character) not in UNSEEN
        else f"<U+{ord(character):04X}>"
        for character in text
    )


def is_blank(text: str) -> bool:
    """Return whether `text` is empty, or all of its characters are spaces or invisible."""
    return all(category(each) in INVISIBLE or _IGNORABLE.match(each) for each in text)
