"""Training pairs to drop: those that clean-corpus-n.perl of Moses drops, and repeated ones."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

MAX_WORD_CHARACTERS = 1000  # the script's default; a longer "word" is a table or lacks line breaks


@dataclass(frozen=True)
class Cleaning:
    """Bounds on the two sides of a pair, in tokens. The script's own ratio is 9.

    A "|" is a character like all others; the script deletes it, or fails on it between factors.

    Attributes:
        min_tokens: Minimum number of tokens of a side.
        max_tokens: Maximum number of tokens of a side.
        max_ratio: Maximum of the longer side's number of tokens divided by the shorter one's.
    """

    min_tokens: int
    max_tokens: int
    max_ratio: float

    def reason_to_drop(self, src_tokens: str, tgt_tokens: str) -> str | None:
        """Return the reason to drop a pair of tokenized lines, or None to keep it."""
        src_words = src_tokens.split()
        tgt_words = tgt_tokens.split()
        # The order of the tests decides which reason is counted.
        min_words = min(len(src_words), len(tgt_words))
        max_words = max(len(src_words), len(tgt_words))
        if min_words == 0:
            return "empty"
        if max_words > self.max_tokens:
            return "too_long"
        if min_words < self.min_tokens:
            return "too_short"
        if max_words / min_words > self.max_ratio:
            return "ratio"
        for line, words in ((src_tokens, src_words), (tgt_tokens, tgt_words)):
            # A short line has no long word; the first test is much faster.
            if len(line) > MAX_WORD_CHARACTERS and max(map(len, words)) > MAX_WORD_CHARACTERS:
                return "long_word"
        return None


def describe_reasons(reasons: Counter[str]) -> str:
    """Return reasons and their numbers for a message, the most frequent first."""
    # Reasons are keys of JSON, such as held_out.
    return ", ".join(f"{n:,} {reason.replace('_', ' ')}" for reason, n in reasons.most_common())


class SeenPairs:
    """The pairs so far, as 64 bits of BLAKE2: millions of them fit into memory.

    Among n pairs, two different ones collide with probability n^2 / 2^65: with 36 million pairs,
    1 in 28,000.
    """

    def __init__(self) -> None:
        """Begin without a pair."""
        self._hashes: set[int] = set()

    def repeated(self, pairs: Sequence[tuple[str, str]]) -> frozenset[int]:
        """Add `pairs`, and return the indices of those that occurred before, in any call."""
        repeated = []
        for index, (src, tgt) in enumerate(pairs):
            text = f"{len(src)} {src}{tgt}".encode()  # the length separates the sides
            value = int.from_bytes(blake2b(text, digest_size=8).digest())
            if value in self._hashes:
                repeated.append(index)
            self._hashes.add(value)
        return frozenset(repeated)
