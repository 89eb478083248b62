"""Choose sentence pairs of a training text to be held out of it, for development and test."""

import hashlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from nmtkit.sources.source import Pair


@dataclass(frozen=True, order=True)
class Chosen:
    """A pair of the text; its rank is a hash, so that rising ranks are a random order."""

    rank: bytes
    line: int
    pair: Pair


def sample(pairs: Iterable[Pair], size: int) -> list[Chosen]:
    """Return `size` different pairs of `pairs`, or all if there are fewer, in a random order.

    They have the least hashes: mostly the same ones when lines are added to the text.
    """
    least: list[tuple[int, Chosen]] = []  # a heap whose first has the greatest hash
    ranks: set[bytes] = set()
    for line, pair in enumerate(pairs, 1):
        rank = hashlib.sha256("\t".join(pair).encode("utf-8")).digest()
        if rank in ranks or (len(least) == size and rank > least[0][1].rank):
            continue
        entry = (-int.from_bytes(rank), Chosen(rank, line, pair))
        ranks.add(rank)
        if len(least) < size:
            heapq.heappush(least, entry)
        else:
            ranks.discard(heapq.heappushpop(least, entry)[1].rank)
    return sorted(chosen for _, chosen in least)
