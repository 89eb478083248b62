"""Split lines that are longer than a model can read."""

# ruff: noqa: RUF001 - full-width punctuation ends sentences too

import re
from collections.abc import Callable, Iterator

# Longer text is split before it is tokenized, since the time of BPE and of some Moses rules is
# quadratic in the length of a word: on one core, 4,096 characters take at most 0.1 s and 65,536
# take 25 s. The longest of 120,000 lines of news has 774 characters.
MAX_CHARACTERS = 4_096

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？]")
_WORD_END = re.compile(r"(?<=\S)(?=\s)")


def encode_in_pieces(
    text: str, encode: Callable[[str], list[int]], max_ids: int
) -> Iterator[list[int]]:
    """Yield the ids of `text` in one piece or, if there are more than `max_ids`, in several.

    Text that is too long is split in two, as near to its middle as possible: at the end of a
    sentence if there is one, else between two words, else between two characters. So the time is
    linear in the length. Blank pieces are left out. A single character is one piece, however many
    ids it has.
    """
    if len(text) <= MAX_CHARACTERS:
        ids = encode(text)
        if len(ids) <= max_ids or len(text) == 1:
            if ids:
                yield ids
            return
    cut = _place_to_cut(text)
    yield from encode_in_pieces(text[:cut].rstrip(), encode, max_ids)
    yield from encode_in_pieces(text[cut:].lstrip(), encode, max_ids)


def _place_to_cut(text: str) -> int:
    """Return where to split, with text on both sides."""
    middle = len(text) // 2
    for ends in (_SENTENCE_END, _WORD_END):
        places = [end.end() for end in ends.finditer(text)]
        if places[-1:] == [len(text)]:
            places.pop()
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
