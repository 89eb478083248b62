"""From bytes to lines of UTF-8 text. Other files are recognized and refused with a remedy.

This module imports no reader of files: standard input needs none.
"""

import os
import re
from collections.abc import Iterable, Iterator
from functools import partial

from nmtkit.utils.errors import UserError

PIPE_BYTES = 2**16  # the capacity of a pipe
MAX_LINE_BYTES = 2**24  # 16 MiB; anything longer is not text, and would fill the memory
BYTE_ORDER_MARK = "\ufeff"
HEAD_BYTES = 2**16  # enough to detect the format of a text

UTF_16 = "UTF-16"
# In UTF-16, a Latin letter has a NUL, always as its first or always as its last byte.
MIN_NULS = 0.2  # share of the bytes
MAX_OTHER_NULS = 0.1  # ratio of NULs at the other place to these
MIN_LINE_FEEDS = 3  # in UTF-16 of other scripts, where only line feeds and spaces have a NUL
MAX_LINE_FEEDS = 1  # of a text with lone carriage returns: an editor may have added the last
MIN_RETURNS_PER_LINE_FEED = 10

SPREADSHEET = ("a spreadsheet (Excel, LibreOffice)", "save it as CSV or plain text in UTF-8")
DOCUMENT = ("a document (Word, LibreOffice)", "save it as plain text in UTF-8")
OFFICE = ("an Office document", "save it as plain text or CSV in UTF-8")
OLD_OFFICE = ("an old Office document (.doc, .xls)", OFFICE[1])
UNPACK = "unpack it"
COPY_COLUMN = "copy one column to a text file"
AS_DATASET = "use the key dataset in a recipe, or pass --dataset to `nmtkit new`"
TO_UTF_8 = (
    "convert it to UTF-8: save it as CSV UTF-8 in Excel, or run "
    "`iconv -f UTF-16 -t UTF-8 FILE > NEW_FILE`"
)
# The first one that matches counts: special cases come first.
SIGNATURES = {
    rb"\x1f\x8b": ("gzip", "add .gz to its name, or unpack it"),
    rb"BZh[1-9]1AY&SY": ("bzip2", "add .bz2 to its name, or unpack it"),
    rb"\xfd7zXZ\x00": ("xz", "add .xz to its name, or unpack it"),
    rb"\x28\xb5\x2f\xfd": ("zstd", "add .zst to its name, or unpack it"),
    rb"\x1f[\x9d\xa0]": ("compressed (.Z)", "unpack it with `uncompress` or `gzip -d`"),
    rb"(\x04\x22|\x02\x21)\x4d\x18": ("lz4", "unpack it with `lz4 -d`"),
    rb"7z\xbc\xaf\x27\x1c": ("7z", UNPACK),
    rb"Rar!\x1a\x07": ("RAR", UNPACK),
    rb"LZIP\x01": ("lzip", UNPACK),
    rb"\x5d\x00\x00[\x00-\xff]{2}[\x00-\xff]{8}\x00": ("LZMA", UNPACK),
    rb"PK\x03\x04(?s:.*)(xl/|opendocument\.spreadsheet)": SPREADSHEET,
    rb"PK\x03\x04(?s:.*)(word/|opendocument\.text)": DOCUMENT,
    rb"PK\x03\x04(?s:.*)(\[Content_Types\]\.xml|opendocument)": OFFICE,
    rb"PK(\x03\x04|\x05\x06)": ("zip", UNPACK),
    rb"(?s:.{257})ustar[\x00 ]": ("tar", UNPACK),
    rb"PAR1[\x00-\x08\x0e-\x1f]": ("Parquet", COPY_COLUMN),
    rb"ARROW1\x00": ("Arrow", COPY_COLUMN),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": OLD_OFFICE,
    rb"%PDF-\d": ("PDF", "extract its text"),
    rb"\{\\rtf\d": ("RTF", "save it as plain text in UTF-8"),
    rb"SQLite format 3\x00": ("an SQLite database", "export it as CSV"),
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff": ("UTF-32", "convert it to UTF-8"),
    rb"\xff\xfe|\xfe\xff": (UTF_16, TO_UTF_8),
}


def check_is_text(
    head: bytes, where: object, *, is_xml: bool = False, is_parallel: bool = False
) -> None:
    """Refuse bytes that are not text in UTF-8 with line feeds.

    Args:
        head: The first bytes of a text, or all of it.
        where: What error messages call the text.
        is_xml: Whether the text is parsed as XML. It may be UTF-16 and have other line ends.
        is_parallel: Whether it is part of parallel text. This may be a data set.

    Raises:
        UserError: The text is compressed, a binary format, or in UTF-16, or its lines end in
            carriage returns only.
    """
    for signature, (form, remedy) in SIGNATURES.items():
        if re.match(signature, head) and not (is_xml and form == UTF_16):
            advice = AS_DATASET if is_parallel and remedy == COPY_COLUMN else remedy
            raise UserError(f"{where} is not text, but looks like {form}; {advice}")
    if is_xml:
        return
    # A NUL is a valid character of UTF-8: decoding would not fail.
    n_line_feeds = head.count(b"\n")
    n_other_nuls, n_nuls = sorted([head[0::2].count(0), head[1::2].count(0)])
    has_latin = n_nuls > MIN_NULS * len(head) and n_other_nuls <= MAX_OTHER_NULS * n_nuls
    has_wide_lines = n_line_feeds in (head.count(b"\n\0"), head.count(b"\0\n"))
    if has_latin or (has_wide_lines and n_line_feeds >= MIN_LINE_FEEDS):
        raise UserError(f"{where} is not UTF-8, but looks like {UTF_16}; {TO_UTF_8}")
    # All lines would be read as one.
    n_lone_returns = len(re.findall(rb"\r(?=[^\r\n])", head))
    if n_line_feeds <= MAX_LINE_FEEDS and n_lone_returns > MIN_RETURNS_PER_LINE_FEED * n_line_feeds:
        raise UserError(
            f"{where} has carriage returns for line ends, as on old Macs; convert them with "
            "`tr '\\r' '\\n'`"
        )


def available_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines of standard input that have arrived, without waiting for more."""
    return read_parts(iter(partial(os.read, descriptor, PIPE_BYTES), b""), "standard input")


def whole_lines(blocks: Iterable[bytes], source: object) -> Iterator[bytes]:
    """Split bytes at line feeds only, and yield the lines that end in each block.

    Args:
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
