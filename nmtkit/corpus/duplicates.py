"""Find repeated pairs in a stream, by hashes of them."""

from collections.abc import Sequence
from hashlib import blake2b


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
