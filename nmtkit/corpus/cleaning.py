"""Which training pairs are dropped, as the Moses script clean-corpus-n.perl decides."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["empty", "too_long", "too_short", "ratio", "long_word"]

MAX_WORD_CHARACTERS = 1000  # the script's default; a longer "word" is a table or lacks line breaks


@dataclass(frozen=True)
class Cleaning:
    """Bounds on the two sides of a pair, in tokens. The script's own ratio is 9.

    There are two differences from the script: it also deletes every "|" from the pairs it keeps,
    which only phrase tables need, and it fails on a "|" between factors, which do not exist here.
    """

    min_tokens: int
    max_tokens: int
    max_ratio: float

    def reason_to_drop(self, src_tokens: str, tgt_tokens: str) -> Reason | None:
        """Return why a pair is dropped, or None to keep it."""
        src, tgt = src_tokens.split(), tgt_tokens.split()
        if not src or not tgt:
            return "empty"
        if len(src) > self.max_tokens or len(tgt) > self.max_tokens:
            return "too_long"
        if len(src) < self.min_tokens or len(tgt) < self.min_tokens:
            return "too_short"
        if len(src) / len(tgt) > self.max_ratio or len(tgt) / len(src) > self.max_ratio:
            return "ratio"
        if _has_long_word(src_tokens, src) or _has_long_word(tgt_tokens, tgt):
            return "long_word"
        return None


def _has_long_word(line: str, words: list[str]) -> bool:
    """Return whether a word exceeds the limit; a line within it need not be searched."""
    return len(line) > MAX_WORD_CHARACTERS and max(map(len, words)) > MAX_WORD_CHARACTERS
