"""The segments of an SGML file, as the test sets of WMT are published."""

import html
import re
from collections.abc import Iterator

from nmtkit.errors import UserError

MAX_SEGMENT_CHARACTERS = 2**24  # as many as a line may have bytes
_BEGIN, _START, _END = (re.compile(tag, re.IGNORECASE) for tag in ("<seg", "<seg[^<>]*>", "</seg>"))


def read_segments(lines: Iterator[str], where: str) -> Iterator[str]:
    """Yield the text of every <seg>, in time linear in the size of the file.

    Whitespace is collapsed to single spaces and character references are resolved.

    Raises:
        UserError: A segment is too long or never ends.
    """
    waiting: list[str] = []  # lines since the end of the last segment; a segment may span several
    n_waiting = 0
    for line in lines:
        n_waiting += len(line) + 1  # with the space that joins it to the next
        if n_waiting > MAX_SEGMENT_CHARACTERS:
            raise UserError(f"{where}: a segment longer than {MAX_SEGMENT_CHARACTERS:,} characters")
        *ended, rest = _END.split(line)
        for part in ended:
            _, *segment = _START.split(" ".join((*waiting, part)), maxsplit=1)
            if segment:
                yield _plain(segment[0], where)
            waiting, n_waiting = [], len(rest) + 1
        waiting.append(rest)
    if any(_BEGIN.search(line) for line in waiting):
        raise UserError(f"{where} is cut short: its last segment has no end")


def _plain(segment: str, where: str) -> str:
    try:
        return html.unescape(" ".join(segment.split())).replace("\n", " ")
    except ValueError:  # Python parses no number of more than 4,300 digits
        raise UserError(f"{where}: a character reference, &#...;, of too many digits") from None
