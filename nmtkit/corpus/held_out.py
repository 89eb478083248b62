"""Choose sentence pairs of a training text to be held out of it, for development and test."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from nmtkit.sources.source import Pair


class RankedPair(NamedTuple):
    """A pair of the text; its rank is a hash, and rising ranks are a random order."""

    rank: bytes
    line: int
    pair: Pair


def sample(pairs: Iterable[Pair], size: int) -> list[RankedPair]:
    """Choose different pairs of a text at random: mostly the same ones after lines are added.

    Args:
        size: Number of pairs to choose; all are chosen if there are fewer.

    Returns:
        The pairs with the smallest hashes, in the order of these.
    """
    candidates: dict[bytes, RankedPair] = {}  # by rank: a repeated pair has one
    max_rank = b"\xff" * 32
    for line, pair in enumerate(pairs, 1):
        rank = hashlib.sha256("\t".join(pair).encode("utf-8")).digest()
        if rank <= max_rank:
            candidates.setdefault(rank, RankedPair(rank, line, pair))
        # Twice as many candidates as needed: sorting once per `size` lines is fast.
        if len(candidates) == 2 * size:
            smallest = sorted(candidates.values())[:size]
            candidates = {chosen.rank: chosen for chosen in smallest}
            max_rank = smallest[-1].rank
    return sorted(candidates.values())[:size]
