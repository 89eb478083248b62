"""Learn byte-pair encoding as subword-nmt defines it (section 5.1), from millions of words.

All words are stored end to end in one array, and a merge is a few array operations at the positions
of its pair. Only the positions of frequent pairs are listed. When those pairs are merged, the words
are compacted and the pairs that are frequent now are listed: round by round, and exact throughout.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtkit.corpus.bpe_subword import END_OF_WORD, BpeCodes, BpeVersion, Pair
from nmtkit.utils import progress

IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
IdPair = tuple[int, int]

SEPARATOR = ord(" ")  # which is in no word
BOUNDARY = 0  # the id of the separator before, between and after words
INSIDE = -1  # fills the positions of a symbol after its first
MIN_FREQUENCY = 2  # of a pair that is merged, as in subword-nmt

# A round lists the pairs of largest count, but none so rare that its merges would add millions of
# others to the list.
MAX_LISTED = 2**15
MAX_RATIO = 1000  # of the round's largest count to its smallest


class _ReversedPair(tuple[str, str]):
    """A pair with the order reversed, to get the largest from a heap first."""

    __slots__ = ()
    __lt__ = tuple.__gt__


def learn_bpe(
    word_counts: Mapping[str, int], n_merges: int, version: BpeVersion = "0.2"
) -> BpeCodes:
    """Learn merges, the most frequent pair first; of equally frequent ones, the largest strings.

    The merges are those of subword-nmt 0.3.8 or, for 0.1, of its commit 4c54e1d; earlier commits
    leave the order of ties undefined. Words must not spell the mark of their end.

    Args:
        word_counts: The words of the text, without spaces, and their counts.
        n_merges: Number of merges. There are fewer if no pair occurs MIN_FREQUENCY times any more.
        version: Version of subword-nmt.
    """
    merges: list[Pair] = []
    words = _Words(word_counts, version)
    with progress.task("learn BPE", unit="merges", total=n_merges) as task:
        # Round by round, until no pair is frequent enough.
        while len(merges) < n_merges:
            frequent = _FrequentPairs(words)
            if not frequent.counts:
                break
            for pair in islice(frequent.merges(), n_merges - len(merges)):
                merges.append(pair)
                task.advance(1)
            del frequent  # its positions take as much memory as the words
            words.compact()
    return BpeCodes(merges, version)


class _PairPositions(NamedTuple):
    """Distinct pairs of ids, their counts and their positions.

    Attributes:
        first: Ids of the first symbols (n_pairs,).
        second: Ids of the second symbols (n_pairs,).
        counts: Counts (n_pairs,), weighted by the counts of the words; 0 if one of the two is a
            boundary, since that is not a pair.
        starts: Starts of the positions of the pairs in `positions`, and the end (n_pairs + 1,).
        positions: Positions of the first symbols, pair by pair.
    """

    first: IntArray
    second: IntArray
    counts: IntArray
    starts: IntArray
    positions: IntArray


class _Words:
    """All words end to end: the id of a symbol is at the first of the positions that it takes.

    Its length is stored at its first and at its last position. The next and the previous symbol
    are found without links.
    """

    def __init__(self, word_counts: Mapping[str, int], version: BpeVersion) -> None:
        """Split words into characters.

        Args:
            version: Version of subword-nmt; it decides what the last symbol of a word is.
        """
        # In 0.1 a word has a space of its own at its end. It becomes the symbol of the end.
        separator = " " if version == "0.2" else "  "
        text = " " + separator.join((*word_counts, ""))
        characters = np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.int32)
        is_boundary = characters == SEPARATOR
        is_end = np.zeros(len(characters), np.bool_)
        if version == "0.1":
            is_end[:-1] = is_boundary[:-1] & is_boundary[1:]
            is_boundary &= ~is_end
        sizes = np.diff(np.flatnonzero(is_boundary))  # of a word with the boundary before it
        counts = np.fromiter(word_counts.values(), np.int64, len(word_counts))

        # A symbol is twice the code point, plus one at the end of a word; a space with its end is
        # the symbol of the end.
        characters *= 2
        if version == "0.1":
            characters += is_end
        else:
            characters[:-1] += is_boundary[1:]
        characters[is_boundary] = 2 * SEPARATOR

        # Ids from 1, in the order of the symbols.
        ids = np.zeros(characters.max() + 1, np.int32)
        ids[characters] = 1
        ids[2 * SEPARATOR] = BOUNDARY
        (used,) = ids.nonzero()
        ids[used] = np.arange(1, len(used) + 1)
        self.names = [""]
        for symbol in used.tolist():
            character = "" if symbol // 2 == SEPARATOR else chr(symbol // 2)
            self.names.append(character + END_OF_WORD * (symbol % 2))
        self._symbols: IntArray = ids[characters]

        # The narrowest types that hold the largest count and the longest word.
        weight_type = np.min_scalar_type(int(counts.max(initial=0)))
        self._weights: IntArray = np.repeat(counts.astype(weight_type), sizes)
        length_type = np.min_scalar_type(int(sizes.max(initial=1)))
        self._lengths: IntArray = np.ones(len(characters), length_type)

    def compact(self) -> None:
        """Compact the words to one position per symbol."""
        is_first = self._symbols != INSIDE
        self._weights = self._weights[is_first[:-1]]  # the last boundary has none
        self._symbols = self._symbols[is_first]
        self._lengths = np.ones(len(self._symbols), self._lengths.dtype)

    def all_pairs(self) -> _PairPositions:
        """Return all pairs of compact words."""
        positions = np.arange(len(self._symbols) - 1, dtype=np.int32)
        return self._grouped(self._symbols[:-1], self._symbols[1:], positions)

    def merge(self, pair: IdPair, positions: IntArray) -> tuple[int, _PairPositions]:
        """Merge a pair into a new symbol.

        Args:
            pair: The ids of its two symbols.
            positions: All positions of the pair, ascending, and perhaps former ones.

        Returns:
            The id of the new symbol, and all pairs that contain it.
        """
        first, second = pair
        symbols = self._symbols
        lengths = self._lengths

        # Positions where the pair still is.
        positions = positions.astype(
            np.intp
        )  # numpy indexes by it several times faster than by int32
        left = positions[symbols[positions] == first]
        right = left + lengths[left]
        is_pair = symbols[right] == second
        left = left[is_pair]
        right = right[is_pair]
        if first == second:
            # In "aaa", the second pair shares a symbol with the first one.
            alternate = _alternate(left[1:] == right[:-1])
            left = left[alternate]
            right = right[alternate]

        # The neighbours are looked up before the lengths change.
        before = left - lengths[left - 1]
        after = right + lengths[right]
        joined = len(self.names)
        self.names.append(self.names[first] + self.names[second])
        symbols[left] = joined
        symbols[right] = INSIDE
        lengths[left] = after - left
        lengths[after - 1] = after - left

        # The new symbol and its neighbours: (before, joined), then (joined, after).
        n = len(left)
        firsts = np.empty(2 * n, np.int64)
        seconds = np.empty(2 * n, np.int64)
        firsts[:n] = symbols[before]
        seconds[:n] = joined
        firsts[n:] = joined
        seconds[n:] = symbols[after]
        return joined, self._grouped(firsts, seconds, np.concatenate((before, left)))

    def _grouped(self, first: IntArray, second: IntArray, positions: IntArray) -> _PairPositions:
        """Group positions by their pair.

        Args:
            first: Ids of the first symbols (n,).
            second: Ids of the second symbols (n,).
            positions: Positions of the first symbols (n,).
        """
        # (first, second, position) as one number: it sorts much faster than three columns.
        id_bits = len(self.names).bit_length()
        position_bits = len(self._symbols).bit_length()
        assert position_bits <= 31, "too many words"
        assert 2 * id_bits + position_bits <= 63, "too many words and merges"
        keys = first.astype(np.int64)
        keys <<= id_bits
        keys |= second
        keys <<= position_bits
        keys |= positions
        keys.sort()
        positions = keys.astype(np.int32)
        positions &= (1 << position_bits) - 1
        keys >>= position_bits

        # A pair starts where the key differs from the one before it.
        is_start = np.ones(len(keys) + 1, np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_start[1:-1])
        (starts,) = is_start.nonzero()
        pairs = keys[starts[:-1]]
        del keys  # 8 bytes per position
        counts = np.add.reduceat(self._weights[positions], starts[:-1], dtype=np.int64)
        first = pairs >> id_bits
        second = pairs & ((1 << id_bits) - 1)
        counts[np.minimum(first, second) <= BOUNDARY] = 0
        return _PairPositions(first, second, counts, starts, positions)


class _FrequentPairs:
    """The pairs of one round, with their exact counts and their positions.

    All others stay below the round's threshold: a merge creates only pairs with its new symbol,
    which are counted then, and every other count can only fall.
    """

    def __init__(self, words: _Words) -> None:
        self._words = words
        self.counts: dict[IdPair, int] = {}
        self._positions: dict[IdPair, IntArray] = {}
        # Counts fall with every merge while the heap keeps the old ones: an entry is checked when
        # it is popped.
        self._heap: list[tuple[int, _ReversedPair, IdPair]] = []
        pairs = words.all_pairs()
        largest = np.sort(pairs.counts)[-MAX_LISTED:].tolist() or [0]
        self._threshold = max(MIN_FREQUENCY, largest[0], largest[-1] // MAX_RATIO)
        self._list(pairs)

    def _list(self, pairs: _PairPositions) -> None:
        """Add those of the pairs that reach the threshold."""
        names = self._words.names
        (frequent,) = (pairs.counts >= self._threshold).nonzero()
        rows = zip(
            pairs.first[frequent].tolist(),
            pairs.second[frequent].tolist(),
            pairs.counts[frequent].tolist(),
            pairs.starts[frequent].tolist(),
            pairs.starts[frequent + 1].tolist(),
            strict=True,
        )
        for first, second, count, start, end in rows:
            pair = (first, second)
            self.counts[pair] = count
            self._positions[pair] = pairs.positions[start:end]
            heappush(self._heap, (-count, _ReversedPair((names[first], names[second])), pair))

    def merges(self) -> Iterator[Pair]:
        """Merge the most frequent pair, and yield it, until none reaches the threshold."""
        while self._heap:
            minus_count, names, pair = heappop(self._heap)
            count = self.counts.get(pair, 0)
            if count == -minus_count:
                self._merge(pair)
                yield names[0], names[1]
            elif count >= self._threshold:
                heappush(self._heap, (-count, names, pair))

    def _merge(self, pair: IdPair) -> None:
        """Merge a pair, and update the counts of the pairs around it."""
        del self.counts[pair]
        joined, gained = self._words.merge(pair, self._positions.pop(pair))
        first, second = pair
        counts = self.counts
        gained_rows = zip(
            gained.first.tolist(), gained.second.tolist(), gained.counts.tolist(), strict=True
        )
        for left, right, count in gained_rows:
            # A pair with the new symbol replaces one with its first or its second part.
            lost = (second if left == joined else left, first if right == joined else right)
            if lost in counts:
                counts[lost] -= count
        self._list(gained)


def _alternate(touches_previous: BoolArray) -> BoolArray:
    """Select items greedily from the left; no two selected ones touch.

    Args:
        touches_previous: Whether an item touches the one before it (n - 1,), from the second on.

    Returns:
        Whether an item is selected (n,): every other one of a run of items that touch.
    """
    number = np.arange(len(touches_previous) + 1)
    run_start = number.copy()
    run_start[1:][touches_previous] = 0
    np.maximum.accumulate(run_start, out=run_start)
    alternate: BoolArray = (number - run_start) % 2 == 0
    return alternate
