"""One text: a file or a member of an archive, and its lines."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from nmtkit.sources.archives import PackedError, read_blocks, text_suffix
from nmtkit.sources.sgml import Segment, read_segments
from nmtkit.sources.signatures import check_is_text
from nmtkit.utils.errors import UserError

PIPE_BYTES = 2**16  # what a pipe holds
MAX_LINE_BYTES = 2**24  # 16 MiB; anything longer is not text, and would fill the memory
BYTE_ORDER_MARK = "\ufeff"
HEAD_BYTES = 2**16  # enough to detect the format of a text


@dataclass(frozen=True)
class TextFile:
    """A text: a file, or one member of a tar or zip archive.

    The suffixes of its name say how to read it: ".gz", ".bz2", ".xz" and ".zst" are decompressed,
    and ".sgm" and ".sgml" before them hold segments, unless the text `is_plain`.
    """

    path: Path
    member: str | None = None
    sha256: str | None = None  # of a file that is not an archive: its expected hash, if known
    is_plain: bool = False  # lines of text, whatever its name and contents look like
    # Keep a byte order mark, which is otherwise removed. The Moses scripts read it as a character.
    keep_bom: bool = False

    @property
    def name(self) -> str:
        """Return the name of the text itself, whose suffixes count."""
        return self.member or self.path.name

    @property
    def is_sgml(self) -> bool:
        return not self.is_plain and text_suffix(self.name) in (".sgm", ".sgml")

    def __str__(self) -> str:
        return f"{self.member} in {self.path}" if self.member else str(self.path)

    def blocks(self) -> Iterator[bytes]:
        try:
            yield from read_blocks(self.path, self.member, self.sha256)
        except OSError as error:
            raise UserError(f"cannot read {self}: {error.strerror or error}") from None
        except PackedError as error:
            raise UserError(f"{self} {error}") from None


def read_lines(file: TextFile, blocks: Iterable[bytes] | None = None) -> Iterator[str]:
    """Yield the lines of a text without line ends, in bounded memory; its bytes may be given."""
    parts = read_parts(file.blocks() if blocks is None else blocks, file, file.keep_bom)
    lines = chain.from_iterable(parts)
    if file.is_sgml:
        for segment in read_segments(lines, str(file)):
            yield segment.text
    else:
        yield from lines


def segments_of(file: TextFile) -> list[Segment]:
    """Return the segments of an SGML file."""
    return list(read_segments(chain.from_iterable(read_parts(file.blocks(), file)), str(file)))


def arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines of standard input that have arrived, without waiting for more."""
    return read_parts(iter(partial(os.read, descriptor, PIPE_BYTES), b""), "standard input")


def whole_lines(blocks: Iterable[bytes], source: object) -> Iterator[bytes]:
    """Split at line feeds alone, and yield the lines that each block ends, joined by line feeds."""
    n_lines, rest = 0, b""
    is_first = True
    for block in blocks:
        if is_first:
            check_is_text(block[:HEAD_BYTES], source)
            is_first = False
        rest += block
        first_end = rest.find(b"\n")
        if (first_end if first_end >= 0 else len(rest)) > MAX_LINE_BYTES:
            raise UserError(
                f"{source}, line {n_lines + 1:,}: longer than {MAX_LINE_BYTES:,} bytes; split it"
            )
        lines, ended, rest = rest.rpartition(b"\n")
        if ended:
            n_lines += lines.count(b"\n") + 1
            yield lines
    if rest:
        yield rest


def read_parts(
    blocks: Iterable[bytes], source: object, keep_bom: bool = False
) -> Iterator[list[str]]:
    """Yield the lines that each block ends; those before one that is not UTF-8 still come.

    Args:
        blocks: The bytes of the text.
        source: Its name in errors.
        keep_bom: Keep a byte order mark at the start.
    """
    n_lines = 0
    for content in whole_lines(blocks, source):
        remove_bom = n_lines == 0 and not keep_bom
        try:
            lines = _decoded(content, remove_bom)
        except UnicodeDecodeError as error:
            good, line_end, _ = content[: error.start].rpartition(b"\n")
            lines = _decoded(good, remove_bom) if line_end else []
            yield lines
            number, byte = n_lines + len(lines) + 1, error.start - len(good + line_end) + 1
            raise UserError(
                f"{source}, line {number:,}: byte {byte} is not valid UTF-8; convert it to UTF-8"
            ) from None
        n_lines += len(lines)
        yield lines


def _decoded(content: bytes, remove_bom: bool) -> list[str]:
    text = content.decode("utf-8")
    if remove_bom:
        text = text.removeprefix(BYTE_ORDER_MARK)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
