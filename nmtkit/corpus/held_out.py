"""Choose sentence pairs of a training text to be held out of it, for development and test."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from nmtkit.sources.source import Pair


class Chosen(NamedTuple):
    """A pair of the text; its rank is a hash, so that rising ranks are a random order."""

    rank: bytes
    line: int
    pair: Pair


def sample(pairs: Iterable[Pair], size: int) -> list[Chosen]:
    """Return `size` different pairs of `pairs`, or all if there are fewer, in a random order.

    They have the least hashes: mostly the same ones when lines are added to the text.
    """
    least: dict[bytes, Chosen] = {}
    most = b"\xff" * 32  # no rank above it is among the least
    for line, pair in enumerate(pairs, 1):
        rank = hashlib.sha256("\t".join(pair).encode("utf-8")).digest()
        if rank <= most:
            least.setdefault(rank, Chosen(rank, line, pair))
        if len(least) == 2 * size:
            least = {each.rank: each for each in sorted(least.values())[:size]}
            most = max(least)
    return sorted(least.values())[:size]
