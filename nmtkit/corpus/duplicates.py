"""Find repeated pairs in a stream, in 8 bytes of memory per pair."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

MIN_RECENT = 2**18  # hashes that wait in a Python set, about 20 MB, before they are merged


class SeenPairs:
    """The pairs so far, as 64 bits of BLAKE2 each.

    Among n pairs, two different ones collide with probability n^2 / 2^65: with 36 million pairs,
    1 in 28,000.
    """

    def __init__(self) -> None:
        self._sorted: Hashes = np.empty(0, np.uint64)
        self._recent: set[int] = set()

    def repeated(self, pairs: Sequence[tuple[str, str]]) -> frozenset[int]:
        """Add `pairs`, and return the indices of those that occurred before, in any call."""
        hashes = [_hash(pair) for pair in pairs]
        before = self._among_sorted(np.array(hashes, np.uint64))
        repeated = []
        for place, value in enumerate(hashes):
            if before[place] or value in self._recent:
                repeated.append(place)
            else:
                self._recent.add(value)
        # Merging only when they are an eighth of all moves each hash only a few times.
        if len(self._recent) > max(MIN_RECENT, len(self._sorted) // 8):
            recent = np.fromiter(self._recent, np.uint64, len(self._recent))
            self._sorted = np.concatenate([self._sorted, recent])
            self._sorted.sort()
            self._recent = set()
        return frozenset(repeated)

    def _among_sorted(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        if len(self._sorted) == 0:
            return np.zeros(len(hashes), np.bool_)
        places = np.searchsorted(self._sorted, hashes)
        places[places == len(self._sorted)] = 0
        return np.asarray(self._sorted[places] == hashes)


def _hash(pair: tuple[str, str]) -> int:
    src, tgt = pair
    text = f"{len(src)} {src}{tgt}".encode()  # the length separates the sides
    return int.from_bytes(blake2b(text, digest_size=8).digest())
