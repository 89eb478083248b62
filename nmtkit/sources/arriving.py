"""Lines as they arrive, in growing parts, so that the first translation is out early."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from nmtkit.sources.text import read_parts

Item = TypeVar("Item")

BLOCK_BYTES = 2**16  # what a pipe holds


def arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines of standard input that have arrived, without waiting for more."""
    return read_parts(iter(partial(os.read, descriptor, BLOCK_BYTES), b""), "standard input")


def in_growing_parts(
    chunks: Iterable[Iterable[Item]], most: int, n_done: int = 0
) -> Iterator[list[Item]]:
    """Split chunks into parts of one item, then of as many as were before, up to `most`.

    So the first result is out early, and later batches are full. Where a part ends depends on
    nothing but its place: after `n_done` items, what is left is split as if none were done.
    """
    for chunk in chunks:
        items = iter(chunk)
        while part := list(islice(items, min(n_done + 1, most))):
            yield part
            n_done += len(part)
