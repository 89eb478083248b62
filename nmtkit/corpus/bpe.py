"""Byte-pair encoding as subword-nmt defines it (section 5.1): learn merges, split words.

The last character of a word carries the mark "</w>" while merging. In the pieces that come out, all
but a word's last end in "@@". Words are what stands between ASCII spaces, and hold no whitespace.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path

from nmtkit.errors import UserError

Pair = tuple[str, str]

VERSION_LINE = "#version: 0.2"
END_OF_WORD = "</w>"
CONTINUES = "@@"
NEVER = sys.maxsize  # the rank of a pair that is no merge


def words_of(line: str) -> list[str]:
    """Return what stands between ASCII spaces, as subword-nmt reads a line."""
    return [word for word in line.strip("\r\n ").split(" ") if word]


class _Largest(tuple[str, str]):
    """A pair that a heap, which hands out its smallest entry, hands out largest first."""

    __slots__ = ()
    __lt__ = tuple.__gt__


def learn_bpe(
    word_counts: Mapping[str, int],
    n_merges: int,
    min_frequency: int = 2,
    progress: Callable[[int], None] | None = None,
) -> list[Pair]:
    """Return the merges, most frequent pair first, ties going to the largest pair of strings.

    The list is shorter than `n_merges` when no pair is left that occurs `min_frequency` times.
    The same merges as `subword-nmt learn-bpe`, whose own counts can go wrong where one string
    comes about by two different merges; here the counts stay exact.
    """
    words = [_symbols(word) for word in word_counts]
    word_count = list(word_counts.values())
    pair_count: defaultdict[Pair, int] = defaultdict(int)
    found_in: defaultdict[Pair, list[int]] = defaultdict(list)  # may name words that lost the pair
    for index, word in enumerate(words):
        for pair in pairwise(word):
            pair_count[pair] += word_count[index]
            found_in[pair].append(index)

    # Counts fall with every merge, and the heap is not told: an entry is checked when it comes out.
    heap = [(-n, _Largest(pair)) for pair, n in pair_count.items() if n >= min_frequency]
    heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < n_merges:
        minus_count, entry = heappop(heap)
        pair = (entry[0], entry[1])
        count = pair_count.get(pair, 0)
        if count != -minus_count:
            if count >= min_frequency:
                heappush(heap, (-count, entry))
            continue
        grown: set[Pair] = set()
        for index in found_in.pop(pair):
            for new_pair in _merge(words[index], pair, word_count[index], pair_count):
                found_in[new_pair].append(index)
                grown.add(new_pair)
        del pair_count[pair]
        for new_pair in grown:
            if pair_count[new_pair] >= min_frequency:
                heappush(heap, (-pair_count[new_pair], _Largest(new_pair)))
        merges.append(pair)
        if progress:
            progress(1)
    return merges


def _symbols(word: str) -> list[str]:
    """Return a word's characters, the last one marked."""
    return [*word[:-1], word[-1] + END_OF_WORD]


def _merge(
    word: list[str], pair: Pair, word_count: int, pair_count: defaultdict[Pair, int]
) -> list[Pair]:
    """Join every `pair` in `word`, keep `pair_count` exact and return the pairs that came about."""
    first, second = pair
    joined = first + second
    new_pairs: list[Pair] = []
    i, last = 0, len(word) - 1
    while i < last:
        if word[i] == first and word[i + 1] == second:
            if i > 0:
                before = word[i - 1]
                pair_count[before, first] -= word_count
                pair_count[before, joined] += word_count
                new_pairs.append((before, joined))
            if i + 1 < last:
                after = word[i + 2]
                pair_count[second, after] -= word_count
                pair_count[joined, after] += word_count
                new_pairs.append((joined, after))
            word[i : i + 2] = (joined,)
            last -= 1
        i += 1
    return new_pairs


def write_codes(path: Path, merges: Iterable[Pair]) -> None:
    """Write merges in subword-nmt's codes format."""
    lines = [VERSION_LINE, *(f"{first} {second}" for first, second in merges)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def read_codes(path: Path) -> list[Pair]:
    """Read merges from a codes file of subword-nmt's version 0.2.

    Raises: UserError when the file is missing or is no such file.
    """
    try:
        header, *lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except OSError as error:
        raise UserError(f"cannot read the BPE codes {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"the BPE codes {path} are not UTF-8 text") from None
    if header.strip() != VERSION_LINE:
        raise UserError(f"{path} starts with {header[:40]!r}; BPE codes start with {VERSION_LINE}")
    merges = []
    for number, line in enumerate(lines, start=2):
        match line.strip("\r\n ").split(" "):
            case [first, second] if first and second:
                merges.append((first, second))
            case _:
                raise UserError(f"{path}, line {number}: {line[:80]!r} is not two subwords")
    return merges


class Bpe:
    """Splits words by a list of merges, as `subword-nmt apply-bpe` does."""

    def __init__(self, merges: Sequence[Pair]) -> None:
        self._rank: dict[Pair, int] = {}
        self._parts: dict[str, Pair] = {}
        for rank, pair in enumerate(merges):
            if self._rank.setdefault(pair, rank) == rank:  # a pair listed twice counts once
                self._parts.setdefault("".join(pair), pair)

    def split(self, word: str) -> tuple[str, ...]:
        """Return the pieces of a word, all but the last ending in "@@"."""
        rank = self._rank.get
        symbols = _symbols(word)
        ranks = [rank(pair, NEVER) for pair in pairwise(symbols)]
        while ranks and (best := min(ranks)) != NEVER:
            i = 0
            while best in ranks[i:]:  # every place of this pair before the next pair, left to right
                i = ranks.index(best, i)
                symbols[i : i + 2] = (symbols[i] + symbols[i + 1],)
                del ranks[i]
                if i > 0:
                    ranks[i - 1] = rank((symbols[i - 1], symbols[i]), NEVER)
                if i < len(ranks):
                    ranks[i] = rank((symbols[i], symbols[i + 1]), NEVER)
        last = symbols.pop().removesuffix(END_OF_WORD)
        return (*(symbol + CONTINUES for symbol in symbols), last)

    def unmerge(self, piece: str) -> tuple[str, str] | None:
        """Return the two pieces that `piece` was merged from; None for a single character."""
        inner = piece.endswith(CONTINUES)
        symbol = piece.removesuffix(CONTINUES) if inner else piece + END_OF_WORD
        if symbol not in self._parts:
            return None
        first, second = self._parts[symbol]
        second = second + CONTINUES if inner else second.removesuffix(END_OF_WORD)
        return first + CONTINUES, second
