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

PIPE_BYTES = 2**16  # the capacity of a pipe
MAX_LINE_BYTES = 2**24  # 16 MiB; anything longer is not text, and would fill the memory
BYTE_ORDER_MARK = "\ufeff"
HEAD_BYTES = 2**16  # enough to detect the format of a text


@dataclass(frozen=True)
class TextFile:
    """A text: a file, or one member of a tar or zip archive.

    The suffixes of its name determine its format: ".gz", ".bz2", ".xz" and ".zst" are decompressed,
    and ".sgm" and ".sgml" before them hold segments, unless the text `is_plain`.

    Attributes:
        path: The file.
        member: The name of the member, if the file is an archive.
        sha256: The expected hash of a file that is not an archive, if it is known.
        is_plain: Read lines of text, whatever its name and contents look like.
        keep_bom: Keep a byte order mark at the start, which is otherwise removed. The scripts of
            Moses read it as a character.
    """

    path: Path
    member: str | None = None
    sha256: str | None = None
    is_plain: bool = False
    keep_bom: bool = False

    @property
    def name(self) -> str:
        """The name of the text itself, whose suffixes count."""
        return self.member or self.path.name

    @property
    def is_sgml(self) -> bool:
        """Whether it consists of segments of SGML."""
        return not self.is_plain and text_suffix(self.name) in (".sgm", ".sgml")

    def __str__(self) -> str:
        """Return the text as messages name it."""
        return f"{self.member} in {self.path}" if self.member else str(self.path)

    def blocks(self) -> Iterator[bytes]:
        """Yield its decompressed bytes.

        Raises:
            UserError: It cannot be read, is damaged, or is not the text of `sha256`.
        """
        try:
            # All errors of files and archives become one sentence about this text here.
            yield from read_blocks(self.path, self.member, self.sha256)
        except OSError as error:
            raise UserError(f"cannot read {self}: {error.strerror or error}") from None
        except PackedError as error:
            raise UserError(f"{self} {error}") from None


def read_lines(file: TextFile, blocks: Iterable[bytes] | None = None) -> Iterator[str]:
    """Yield the lines of a text without line ends, in bounded memory.

    Args:
        file: The text.
        blocks: Its bytes, if the caller has opened it; a pipe can be read only once.
    """
    # Lines are decoded a block at a time, which is much faster than one by one.
    parts = read_parts(file.blocks() if blocks is None else blocks, file, file.keep_bom)
    lines = chain.from_iterable(parts)
    if file.is_sgml:
        for segment in read_segments(lines, str(file)):
            yield segment.text
    else:
        yield from lines


def file_segments(file: TextFile) -> list[Segment]:
    """Return the segments of an SGML file."""
    return list(read_segments(chain.from_iterable(read_parts(file.blocks(), file)), str(file)))


def available_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines of standard input that have arrived, without waiting for more."""
    return read_parts(iter(partial(os.read, descriptor, PIPE_BYTES), b""), "standard input")


def whole_lines(blocks: Iterable[bytes], source: object) -> Iterator[bytes]:
    """Split bytes at line feeds only, and yield the lines that end in each block.

    Args:
        blocks: The bytes of a text.
        source: What messages call the text.

    Yields:
        One line or several, joined by line feeds.

    Raises:
        UserError: The bytes are not text, or a line is too long.
    """
    n_lines = 0
    rest = b""  # of the line that has not ended
    is_first = True
    for block in blocks:
        if is_first:
            check_is_text(block[:HEAD_BYTES], source)
            is_first = False
        # Only the first line may be long: the others are within one block.
        rest += block
        first_end = rest.find(b"\n")
        if (first_end if first_end >= 0 else len(rest)) > MAX_LINE_BYTES:
            raise UserError(
                f"{source}, line {n_lines + 1:,}: longer than {MAX_LINE_BYTES:,} bytes; split it"
            )
        lines, line_end, rest = rest.rpartition(b"\n")
        if line_end:
            n_lines += lines.count(b"\n") + 1
            yield lines
    if rest:
        yield rest


def read_parts(
    blocks: Iterable[bytes], source: object, keep_bom: bool = False
) -> Iterator[list[str]]:
    """Yield the decoded lines that end in each block.

    Args:
        blocks: The bytes of a text.
        source: The name of the text in messages.
        keep_bom: Keep a byte order mark at the start.

    Raises:
        UserError: A line is not UTF-8. The lines before it are yielded first.
    """
    n_lines = 0
    for content in whole_lines(blocks, source):
        remove_bom = n_lines == 0 and not keep_bom
        try:
            lines = _decoded(content, remove_bom)
        except UnicodeDecodeError as error:
            # The byte may be in the last of many lines; those before it are of use to the caller.
            good, line_end, _ = content[: error.start].rpartition(b"\n")
            lines = _decoded(good, remove_bom) if line_end else []
            yield lines
            number = n_lines + len(lines) + 1
            byte = error.start - len(good + line_end) + 1
            raise UserError(
                f"{source}, line {number:,}: byte {byte} is not valid UTF-8; convert it to UTF-8"
            ) from None
        n_lines += len(lines)
        yield lines


def _decoded(content: bytes, remove_bom: bool) -> list[str]:
    """Decode lines that are joined by line feeds.

    Args:
        content: The lines.
        remove_bom: Remove a byte order mark at the start.

    Raises:
        UnicodeDecodeError: They are not UTF-8.
    """
    text = content.decode("utf-8")
    if remove_bom:
        text = text.removeprefix(BYTE_ORDER_MARK)
    lines = text.split("\n")
    # Most texts have no carriage return, and looking for one is fast.
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines
