"""Lines as they arrive, and in parts that grow: the first translation is out early."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from nmtkit.errors import UserError
from nmtkit.sources.text import BYTE_ORDER_MARK, whole_lines

Item = TypeVar("Item")

BLOCK_BYTES = 2**16  # what a pipe holds


def arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines that have arrived, at least one, without waiting for more.

    Args:
        descriptor: That of standard input.

    Raises:
        UserError: A line is too long or not UTF-8. The lines before it have been yielded.
    """
    n_before = 0
    for arrived in whole_lines(_arriving_blocks(descriptor), "standard input"):
        lines: list[str] = []
        for line in arrived.split(b"\n"):
            try:
                text = line.decode("utf-8").removesuffix("\r")
            except UnicodeDecodeError as error:
                yield lines
                raise UserError(
                    f"standard input, line {n_before + len(lines) + 1:,}: byte {error.start + 1} "
                    "is not valid UTF-8; convert the text to UTF-8"
                ) from None
            is_first = n_before + len(lines) == 0
            lines.append(text.removeprefix(BYTE_ORDER_MARK) if is_first else text)
        yield lines
        n_before += len(lines)


def in_growing_parts(chunks: Iterable[list[Item]], most: int) -> Iterator[list[Item]]:
    """Split chunks into parts of at most one item, then two, four, ..., `most`.

    So the first result is out early, and later batches are full.
    """
    size = 1
    for chunk in chunks:
        items = iter(chunk)
        while part := list(islice(items, size)):
            yield part
            size = min(2 * size, most)


def _arriving_blocks(descriptor: int) -> Iterator[bytes]:
    while block := os.read(descriptor, BLOCK_BYTES):
        yield block
