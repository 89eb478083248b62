"""Which training pairs are dropped: by clean-corpus-n.perl of Moses, or since they are repeated."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

MAX_WORD_CHARACTERS = 1000  # the script's default; a longer "word" is a table or lacks line breaks


@dataclass(frozen=True)
class Cleaning:
    """Bounds on the two sides of a pair, in tokens. The script's own ratio is 9.

    A "|" is a character like all others; the script deletes it, or fails on it between factors.
    """

    min_tokens: int
    max_tokens: int
    max_ratio: float

    def reason_to_drop(self, src_tokens: str, tgt_tokens: str) -> str | None:
        src, tgt = src_tokens.split(), tgt_tokens.split()
        if not src or not tgt:
            return "empty"
        if len(src) > self.max_tokens or len(tgt) > self.max_tokens:
            return "too_long"
        if len(src) < self.min_tokens or len(tgt) < self.min_tokens:
            return "too_short"
        if len(src) / len(tgt) > self.max_ratio or len(tgt) / len(src) > self.max_ratio:
            return "ratio"
        for line, words in ((src_tokens, src), (tgt_tokens, tgt)):
            if len(line) > MAX_WORD_CHARACTERS and max(map(len, words)) > MAX_WORD_CHARACTERS:
                return "long_word"
        return None


class SeenPairs:
    """The pairs so far, as 64 bits of BLAKE2 each.

    Among n pairs, two different ones collide with probability n^2 / 2^65: with 36 million pairs,
    1 in 28,000.
    """

    def __init__(self) -> None:
        self._hashes: set[int] = set()

    def repeated(self, pairs: Sequence[tuple[str, str]]) -> frozenset[int]:
        """Add `pairs`, and return the indices of those that occurred before, in any call."""
        repeated = []
        for place, (src, tgt) in enumerate(pairs):
            text = f"{len(src)} {src}{tgt}".encode()  # the length separates the sides
            value = int.from_bytes(blake2b(text, digest_size=8).digest())
            if value in self._hashes:
                repeated.append(place)
            self._hashes.add(value)
        return frozenset(repeated)
