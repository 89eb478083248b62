"""Split lines that are longer than a model can read."""

import re
from collections.abc import Callable, Iterator

# Longer text is split before it is tokenized, since the time of BPE and of some Moses rules is
# quadratic in the length of a word.
MAX_CHARACTERS = 4_096

# A mark with closing quotation marks and brackets before a space, or a mark of Chinese or Japanese.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*(?=\s)|[。！？]")
_WORD_END = re.compile(r"(?<=\S)(?=\s)")


def encode_in_pieces(
    text: str, encode: Callable[[str], list[int]], max_ids: int
) -> Iterator[tuple[str, list[int]]]:
    """Yield a text and its ids in one piece or, if it is too long, in several.

    Blank pieces are left out. A single character is one piece, even if it has more ids.

    Args:
        encode: Returns the ids of a piece.
        max_ids: Maximum number of ids of a piece.
    """
    for piece in split_long(text):
        ids = encode(piece)
        if len(ids) > max_ids and len(piece) > 1:
            for half in _halves(piece):
                yield from encode_in_pieces(half, encode, max_ids)
        elif ids:
            yield piece, ids


def split_long(text: str) -> Iterator[str]:
    """Yield `text` in pieces of `MAX_CHARACTERS` or less, for work that is not linear in it."""
    if len(text) <= MAX_CHARACTERS:
        yield text
    else:
        for half in _halves(text):
            yield from split_long(half)


def _halves(text: str) -> tuple[str, str]:
    """Split near the middle: at the end of a sentence, else of a word, else of a character."""
    middle = len(text) // 2
    cut = middle
    for ends in (_SENTENCE_END, _WORD_END):
        boundaries = [end.end() for end in ends.finditer(text) if end.end() < len(text)]
        if boundaries:
            # Near the middle, to get pieces of similar lengths by few splits.
            cut = min(boundaries, key=lambda boundary: abs(boundary - middle))
            break
    return text[:cut].rstrip(), text[cut:].lstrip()
