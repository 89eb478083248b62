"""Byte-pair encoding as subword-nmt defines it (section 5.1): the merges, and words split by them.

The last character of a word carries the mark "</w>" while merging. In the pieces that come out, all
but a word's last end in "@@". Words are what stands between ASCII spaces, and hold no whitespace.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from pathlib import Path

from nmtkit.artifacts import read_utf8
from nmtkit.errors import UserError, shown

Pair = tuple[str, str]

VERSION_LINE = "#version: 0.2"
END_OF_WORD = "</w>"
CONTINUES = "@@"
MAX_BYTES = 2**23  # of a file of codes; 32,000 merges take 300 kB
NEVER = sys.maxsize  # the rank of a pair that is no merge


def words_of(line: str) -> list[str]:
    """Return what stands between ASCII spaces, as subword-nmt reads a line."""
    return [word for word in line.strip("\r\n ").split(" ") if word]


def write_codes(path: Path, merges: Iterable[Pair]) -> None:
    """Write merges in subword-nmt's codes format."""
    lines = [VERSION_LINE, *(f"{first} {second}" for first, second in merges)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_codes(path: Path) -> list[Pair]:
    """Read merges from a codes file of subword-nmt's version 0.2.

    Raises:
        UserError: the file is missing, too large or no such file.
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
            if self._rank.setdefault(pair, rank) == rank:  # a pair listed twice counts once
                self._parts.setdefault(self._joined[rank], pair)

    def split(self, word: str) -> tuple[str, ...]:
        """Return the pieces of a word, all but the last ending in "@@"."""
        rank = self._rank.get
        symbols = [*word[:-1], word[-1] + END_OF_WORD]
        ranks = list(map(rank, pairwise(symbols), repeat(NEVER)))
        while ranks and (best := min(ranks)) != NEVER:
            joined = self._joined[best]
            while best in ranks:  # every place of this pair before the next pair, left to right
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

        They are shorter than `piece`, whatever the codes say.
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
