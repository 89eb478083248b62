"""Byte-pair encoding as subword-nmt defines it (section 5.1): merges, and words split by them.

While merging, the last character of a word carries the mark "</w>". In the resulting pieces, all
but the last of a word end in "@@". Words are separated by ASCII spaces and hold no whitespace.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from pathlib import Path

from nmtkit.errors import UserError, shown
from nmtkit.files import read_utf8

Pair = tuple[str, str]

VERSION_LINE = "#version: 0.2"
END_OF_WORD = "</w>"
CONTINUES = "@@"
MAX_BYTES = 2**23  # of a codes file; 32,000 merges take 300 kB
NEVER = sys.maxsize  # the rank of a pair that is not a merge


def words_of(line: str) -> list[str]:
    """Split a line at ASCII spaces, as subword-nmt does."""
    return [word for word in line.strip("\r\n ").split(" ") if word]


def write_codes(path: Path, merges: Iterable[Pair]) -> None:
    """Write merges in subword-nmt's codes format."""
    lines = [VERSION_LINE, *(f"{first} {second}" for first, second in merges)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_codes(path: Path) -> list[Pair]:
    """Read merges from a codes file of subword-nmt's version 0.2.

    Raises:
        UserError: the file is missing, too large or malformed.
    """
    header, *lines = read_utf8(path, MAX_BYTES).removesuffix("\n").split("\n")
    if header.strip() != VERSION_LINE:
        raise UserError(f"{path} starts with {shown(header)}; BPE codes start with {VERSION_LINE}")
    merges = []
    for number, line in enumerate(lines, start=2):
        match line.strip("\r\n ").split(" "):
            case [first, second] if first and second:
                merges.append((first, second))
            case _:
                raise UserError(f"{path}, line {number}: {shown(line)} is not two subwords")
    return merges


class Bpe:
    """Splits words by a list of merges, as `subword-nmt apply-bpe` does."""

    def __init__(self, merges: Sequence[Pair]) -> None:
        self._rank: dict[Pair, int] = {}
        self._joined = ["".join(pair) for pair in merges]  # by rank
        self._parts: dict[str, Pair] = {}
        for rank, pair in enumerate(merges):
            if self._rank.setdefault(pair, rank) == rank:  # the first of two equal pairs counts
                self._parts.setdefault(self._joined[rank], pair)

    def split(self, word: str) -> tuple[str, ...]:
        """Split a word into pieces, of which all but the last end in "@@"."""
        rank = self._rank.get
        symbols = [*word[:-1], word[-1] + END_OF_WORD]
        ranks = list(map(rank, pairwise(symbols), repeat(NEVER)))
        while ranks and (best := min(ranks)) != NEVER:
            joined = self._joined[best]
            while best in ranks:  # every occurrence of this pair, left to right, before the next
                i = ranks.index(best)
                symbols[i] = joined
                del symbols[i + 1], ranks[i]
                if i > 0:
                    ranks[i - 1] = rank((symbols[i - 1], joined), NEVER)
                if i < len(ranks):
                    ranks[i] = rank((joined, symbols[i + 1]), NEVER)
        last = symbols.pop().removesuffix(END_OF_WORD)
        return (*[symbol + CONTINUES for symbol in symbols], last)

    def unmerge(self, piece: str) -> tuple[str, str] | None:
        """Return the two pieces that `piece` was merged from; None for a single character.

        They are shorter than `piece`, even if the codes are malformed.
        """
        inner = piece.endswith(CONTINUES)
        symbol = piece.removesuffix(CONTINUES) if inner else piece + END_OF_WORD
        if symbol not in self._parts:
            return None
        first, second = self._parts[symbol]
        if inner:
            return first + CONTINUES, second + CONTINUES
        last = second.removesuffix(END_OF_WORD)
        return (first + CONTINUES, last) if last not in ("", second) else None
