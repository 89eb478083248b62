"""Files that are not UTF-8 text, recognized by their first bytes and refused with a remedy."""

import re

from nmtkit.utils.errors import UserError

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
# The first one that matches counts, so that special cases come first.
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
        is_xml: Whether the text is parsed as XML, which may be UTF-16 and have other line ends.
        is_parallel: Whether it is part of parallel text, which may be a data set.

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
    # A NUL is a valid character of UTF-8, so that decoding would not fail.
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
