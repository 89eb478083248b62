"""Parallel text as it is stored: plain or gzipped files, members of tar archives, WMT's SGML."""

import gzip
import html
import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, cast

from nmtkit.errors import UserError

MAX_LINE_BYTES = 2**24  # 16 MiB; what is longer is no text, and would fill the memory
BYTE_ORDER_MARK = "\ufeff"
SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class TextFile:
    """One side of a corpus: a file, or one member of a tar archive.

    The last suffixes of its name say how it is read: ".gz" is unzipped, ".sgm" holds segments.
    """

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the text itself, whose suffixes count."""
        return self.member or self.path.name

    def __str__(self) -> str:
        return f"{self.member} in {self.path}" if self.member else str(self.path)


@dataclass(frozen=True)
class ParallelText:
    """A corpus whose two sides have the same number of lines."""

    name: str
    src: TextFile
    tgt: TextFile


def read_pairs(text: ParallelText) -> Iterator[tuple[str, str]]:
    """Yield (src, tgt) line by line, in bounded memory.

    Raises: UserError when a file is missing, cut short or not UTF-8, when the sides differ in
        length (after the last pair that both have), or when there is no line at all.
    """
    src_lines, tgt_lines = read_lines(text.src), read_lines(text.tgt)
    n_pairs = 0
    for src, tgt in zip_longest(src_lines, tgt_lines):
        if src is None or tgt is None:
            n_src = n_pairs + (src is not None) + sum(1 for _ in src_lines)
            n_tgt = n_pairs + (tgt is not None) + sum(1 for _ in tgt_lines)
            raise UserError(
                f"the sides of {text.name} differ in length: {text.src} has {n_src:,} lines, "
                f"{text.tgt} has {n_tgt:,}; give two files whose lines belong together"
            )
        n_pairs += 1
        yield src, tgt
    if n_pairs == 0:
        raise UserError(f"the corpus {text.name} is empty: {text.src} has no line")


def read_lines(file: TextFile) -> Iterator[str]:
    """Yield the lines of a text, without their ends, in bounded memory.

    Raises: UserError when the file is missing, cut short or not UTF-8.
    """
    try:
        with _open(file) as stream:
            lines = _decoded_lines(stream, file)
            yield from _segments(lines) if ".sgm" in Path(file.name).suffixes else lines
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise UserError(f"{file} is not a gzip file, or is damaged: {error}") from None
        raise UserError(f"cannot read {file}: {error.strerror or error}") from None
    except (EOFError, zlib.error, tarfile.TarError) as error:
        raise UserError(f"{file} is cut short or damaged: {error}") from None


@contextmanager
def _open(file: TextFile) -> Iterator[IO[bytes]]:
    """Open a text for reading its own bytes, unpacked on the way; nothing is written anywhere."""
    with _open_member(file.path, file.member) if file.member else file.path.open("rb") as stored:
        if Path(file.name).suffix != ".gz":
            yield stored
            return
        with gzip.GzipFile(fileobj=stored) as unzipped:
            yield io.BufferedReader(cast(io.RawIOBase, unzipped))  # lines are split in C


@contextmanager
def _open_member(path: Path, member: str) -> Iterator[IO[bytes]]:
    """Open one regular file of an archive as a stream; other members are passed over."""
    with path.open("rb") as stored, tarfile.open(fileobj=stored, mode="r|*") as archive:
        for entry in archive:
            if entry.name.removeprefix("./") != member:
                continue
            if not entry.isreg():
                raise UserError(f"{member} in {path} is no regular file; it is not read")
            stream = archive.extractfile(entry)
            assert stream is not None
            yield stream
            return
    raise UserError(f"{path} has no member {member}")


def _decoded_lines(stream: IO[bytes], file: TextFile) -> Iterator[str]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES:
            raise UserError(f"{file}, line {number:,}: longer than {MAX_LINE_BYTES:,} bytes")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{file}, line {number:,}: byte {error.start + 1} is not valid UTF-8; "
                f"convert the file to UTF-8"
            ) from None
        if number == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        yield text.removesuffix("\n").removesuffix("\r")


def _segments(lines: Iterator[str]) -> Iterator[str]:
    """Yield the text of every <seg>, whitespace made single, entities resolved."""
    pending = ""
    for line in lines:
        pending = f"{pending} {line}" if pending else line
        for segment in SEGMENT.findall(pending):
            yield html.unescape(" ".join(segment.split()))
        last = pending.rfind("<seg")  # a segment may go on in the next line
        pending = pending[last:] if last > pending.rfind("</seg>") else ""
