"""Parallel text as it is stored: two files, two columns, a translation memory, a data set."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.sources.archives import PackedError, read_blocks, text_suffix
from nmtkit.sources.hub import read_rows
from nmtkit.sources.tmx import read_units

MAX_LINE_BYTES = 2**24  # 16 MiB; what is longer is no text, and would fill the memory
BYTE_ORDER_MARK = "\ufeff"
SEGMENT_BEGIN, SEGMENT_START, SEGMENT_END = (
    re.compile(tag, re.IGNORECASE) for tag in ("<seg", "<seg[^<>]*>", "</seg>")
)

Pair = tuple[str, str]


@dataclass(frozen=True)
class TextFile:
    """A text: a file, or one member of a tar or zip archive.

    The suffixes of its name say how it is read: ".gz", ".bz2", ".xz" and ".zst" are unpacked,
    ".sgm" and ".sgml" before them hold segments. The archive may be compressed as a whole.
    """

    path: Path
    member: str | None = None
    sha256: str | None = None  # of a file that is no archive: what it must hold, if that is known

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


@dataclass(frozen=True)
class TsvText:
    """A corpus in one file, each line of which is two columns with a tab between them."""

    name: str
    file: TextFile
    src_column: int  # 0 or 1
    tgt_column: int  # the other


@dataclass(frozen=True)
class TmxText:
    """A translation memory, from which the units in both languages are taken.

    Languages are compared by their primary subtags: "en-US" is "en".
    """

    name: str
    file: TextFile
    src_lang: str
    tgt_lang: str


@dataclass(frozen=True)
class HubDataset:
    """A data set of the Hugging Face Hub with the column `translation`, one text a language.

    `repository` is its name there, like "wmt/wmt14", and `revision` the full hash of a commit; or
    it is the path of a local folder laid out in the same way, which has no revision.
    """

    name: str
    repository: str
    subset: str
    split: str
    revision: str | None
    src_lang: str
    tgt_lang: str


def read_pairs(text: ParallelText | TsvText | TmxText | HubDataset) -> Iterator[Pair]:
    """Yield (src, tgt) in the order of the corpus, in bounded memory; no text holds a line feed.

    Raises: UserError when a file is missing, damaged, unsafe or not UTF-8, when it is not what
        it should be, or when there is no pair at all. When the sides differ in length, after the
        last pair that both have.
    """
    match text:
        case ParallelText():
            pairs, lack = _read_sides(text), f"{text.src} has no line"
        case TsvText():
            pairs, lack = _read_columns(text), f"{text.file} has no line"
        case TmxText():
            pairs = read_units(_blocks(text.file), str(text.file), text.src_lang, text.tgt_lang)
            lack = f"{text.file} has no unit in both {text.src_lang} and {text.tgt_lang}"
        case HubDataset():
            languages = text.src_lang, text.tgt_lang
            pairs = read_rows(text.repository, text.revision, text.subset, text.split, languages)
            lack = f"{text.split} of {text.repository} has no row"
    first = next(pairs, None)
    if first is None:
        raise UserError(f"the corpus {text.name} is empty: {lack}")
    yield first
    yield from pairs


def _read_sides(text: ParallelText) -> Iterator[Pair]:
    src_lines, tgt_lines = read_lines(text.src), read_lines(text.tgt)
    for n_pairs, (src, tgt) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src is None or tgt is None:
            n_src = n_pairs + (src is not None) + sum(1 for _ in src_lines)
            n_tgt = n_pairs + (tgt is not None) + sum(1 for _ in tgt_lines)
            raise UserError(
                f"the sides of {text.name} differ in length: {text.src} has {n_src:,} lines, "
                f"{text.tgt} has {n_tgt:,}; give two files whose lines belong together"
            )
        yield src, tgt


def _read_columns(text: TsvText) -> Iterator[Pair]:
    assert {text.src_column, text.tgt_column} == {0, 1}
    for number, line in enumerate(read_lines(text.file), 1):
        n_columns = line.count("\t") + 1
        if n_columns != 2:
            raise UserError(
                f"{text.file}, line {number:,}: {n_columns:,} columns; give a file whose lines "
                f"have two, with one tab between them"
            )
        columns = line.split("\t")
        yield columns[text.src_column], columns[text.tgt_column]


def read_lines(file: TextFile) -> Iterator[str]:
    """Yield the lines of a text, without their ends, in bounded memory.

    Raises: UserError when the file is missing, damaged, unsafe or not UTF-8.
    """
    lines = _lines(_blocks(file), file)
    is_sgml = text_suffix(file.name) in (".sgm", ".sgml")
    yield from _segments(lines, file) if is_sgml else lines


def _blocks(file: TextFile) -> Iterator[bytes]:
    """Yield the text's own bytes, and name it if they cannot be had."""
    try:
        yield from read_blocks(file.path, file.member, file.sha256)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from None
    except PackedError as error:
        raise UserError(f"{file} {error}") from None


def _lines(blocks: Iterator[bytes], file: TextFile) -> Iterator[str]:
    """Split at line feeds alone."""
    n_lines = 0
    unended: list[bytes] = []  # the beginning of a line, of which a block has had no end
    n_unended = 0
    for block in blocks:
        first_end = block.find(b"\n")
        n_unended += len(block) if first_end < 0 else first_end
        if n_unended > MAX_LINE_BYTES:
            raise UserError(f"{file}, line {n_lines + 1:,}: longer than {MAX_LINE_BYTES:,} bytes")
        if first_end < 0:
            unended.append(block)
            continue
        head, _, tail = block.rpartition(b"\n")
        lines = _decode(b"".join((*unended, head)), n_lines, file)
        unended, n_unended = [tail], len(tail)
        n_lines += len(lines)
        yield from lines
    if n_unended:
        yield from _decode(b"".join(unended), n_lines, file)


def _decode(content: bytes, n_before: int, file: TextFile) -> list[str]:
    """Return the lines that end, and lie between, the line feeds of `content`."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        number = n_before + content.count(b"\n", 0, error.start) + 1
        byte = error.start - content.rfind(b"\n", 0, error.start)
        raise UserError(
            f"{file}, line {number:,}: byte {byte} is not valid UTF-8; convert the file to UTF-8"
        ) from None
    if n_before == 0:
        text = text.removeprefix(BYTE_ORDER_MARK)
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _segments(lines: Iterator[str], file: TextFile) -> Iterator[str]:
    """Yield the text of every <seg>, with single spaces and without entities, in linear time."""
    waiting: list[str] = []  # lines since the last segment's end; a segment may span several
    n_waiting = 0
    for line in lines:
        n_waiting += len(line) + 1  # with the space that joins it to the next
        if n_waiting > MAX_LINE_BYTES:
            raise UserError(f"{file}: a segment longer than {MAX_LINE_BYTES:,} characters")
        *ended, rest = SEGMENT_END.split(line)
        for part in ended:
            _, *segment = SEGMENT_START.split(" ".join((*waiting, part)), maxsplit=1)
            if segment:
                yield _plain(segment[0], file)
            waiting, n_waiting = [], len(rest) + 1
        waiting.append(rest)
    if any(SEGMENT_BEGIN.search(line) for line in waiting):
        raise UserError(f"{file} is cut short: its last segment has no end")


def _plain(segment: str, file: TextFile) -> str:
    try:
        return html.unescape(" ".join(segment.split())).replace("\n", " ")
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise UserError(f"{file}: a character reference, &#...;, of too many digits") from None
