"""Lines that are longer than a model can read, cut into pieces."""

# ruff: noqa: RUF001 - full-width signs end sentences too

import re
from collections.abc import Callable, Iterator

# Longer text is cut before it is tokenized, since the time of BPE and of some rules of Moses grows
# with the square of a word's length: on one core 4,096 characters take at most 0.1 s, 65,536 take
# 25 s. The longest of 120,000 lines of news has 774 characters.
MAX_CHARACTERS = 4_096

_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？]")
_WORD_END = re.compile(r"(?<=\S)(?=\s)")


def encode_in_pieces(
    text: str, encode: Callable[[str], list[int]], max_ids: int
) -> Iterator[list[int]]:
    """Yield the ids of `text` at once or, where there are more than `max_ids`, piece by piece.

    What is too long is cut in two: at the end of a sentence, if there is any, else between two
    words, else between two characters, and of these places at the one nearest to its middle. So
    the time grows with the length alone. Blank pieces are left out. A single character is a piece
    however many ids it has.
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
    """Return the place to cut, which leaves something on either side of it."""
    middle = len(text) // 2
    for ends in (_SENTENCE_END, _WORD_END):
        places = [end.end() for end in ends.finditer(text)]
        if places[-1:] == [len(text)]:
            places.pop()
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
