"""Text as it can be shown: what would be unseen, or act on its surroundings, is named.

A terminal obeys control characters, and U+202E turns round what follows it, in a browser too.
"""

from unicodedata import category

UNSEEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")  # controls, formats, private use, line separators
JOINERS = "\u200c\u200d"  # part of how Persian, Hindi and emoji are spelt


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
