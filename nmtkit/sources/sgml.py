"""Segments of SGML, the format of WMT's test sets until 2020, aligned between several files."""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted, shorten

MAX_SEGMENT_CHARACTERS = 2**24  # the maximum length of a line in bytes

_BEGIN = re.compile("<seg", re.IGNORECASE)
_START = re.compile("(<seg[^<>]*>)", re.IGNORECASE)
_END = re.compile("</seg>", re.IGNORECASE)
_DOCUMENT = re.compile(r"<(/?)doc\b([^<>]*)>", re.IGNORECASE)
_ATTRIBUTE = r"""\b{}\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)"""
_DOCUMENT_ID = re.compile(_ATTRIBUTE.format("docid"), re.IGNORECASE)
_SEGMENT_ID = re.compile(_ATTRIBUTE.format("id"), re.IGNORECASE)


@dataclass(frozen=True)
class Segment:
    """The text of a <seg>, with the ids of the segment and its document."""

    document: str  # the docid of its <doc>; empty if there is none
    number: str  # its id; empty if there is none
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Both ids: the same in the files of all translations."""
        return self.document, self.number

    def __str__(self) -> str:
        """Return the segment as messages name it."""
        return f"segment {shorten(self.number)!r} of document {shorten(self.document)!r}"


def read_segments(lines: Iterable[str], where: str) -> Iterator[Segment]:
    """Yield every <seg> of an SGML file, in time linear in the size of the file.

    Whitespace is collapsed to single spaces and character references are resolved.

    Args:
        where: The name of the file in messages.

    Raises:
        UserError: A segment does not end, or is too long.
    """
    document = ""
    waiting: list[str] = []  # lines since the end of the last segment; a segment may span several
    n_waiting = 0  # characters of these lines, with a space after each
    for line in lines:
        n_waiting += len(line) + 1
        if n_waiting > MAX_SEGMENT_CHARACTERS:
            raise UserError(
                f"{where}: a segment is longer than {MAX_SEGMENT_CHARACTERS:,} characters; split it"
            )
        # Parts before an end tag complete a segment; the rest begins the next one.
        *ended, rest = _END.split(line)
        for part in ended:
            # Tags of documents are between the segments.
            between, *segment = _START.split(" ".join((*waiting, part)), maxsplit=1)
            # Several documents may end and begin there.
            for tag in _DOCUMENT.finditer(between):
                document = "" if tag[1] else _attribute(_DOCUMENT_ID, tag[2])
            if segment:
                attributes, content = segment
                number = _attribute(_SEGMENT_ID, attributes)
                yield Segment(document, number, _plain(content, where))
            waiting = []
            n_waiting = len(rest) + 1
        waiting.append(rest)
    # What follows the last segment are the end tags of the document and the file.
    if any(_BEGIN.search(line) for line in waiting):
        raise UserError(f"{where} is cut short: its last segment is not closed; download it again")


def align_segments(texts: Sequence[Sequence[Segment]], names: Sequence[str]) -> list[list[str]]:
    """Put the segments of several files into the order of the first file, as mteval does.

    Segments are the same if their documents and ids are. Files whose segments have no ids, and
    files that have the same ids in the same order, are left in their order.

    Args:
        texts: The segments of each file, in its order.
        names: What error messages call the files.

    Returns:
        The texts of the segments of each file.

    Raises:
        UserError: A segment is missing in a file or occurs twice, or only some files have ids.
    """
    first = texts[0]
    first_name = names[0]
    first_keys = [segment.key for segment in first]
    aligned = [[segment.text for segment in first]]
    for segments, name in zip(texts[1:], names[1:], strict=True):
        # Files in the same order need no ids; those of early test sets have none.
        in_order = segments
        if [segment.key for segment in segments] != first_keys:
            first_has_ids = _has_ids(first)
            has_ids = _has_ids(segments)
            if first_has_ids != has_ids:
                with_ids, without_ids = (first_name, name) if first_has_ids else (name, first_name)
                raise UserError(
                    f"{with_ids} has ids of documents and segments, but {without_ids} lacks some; "
                    "add docid and id to all, or remove them from both files"
                )
            if has_ids:
                first_by_key = _by_key(first, first_name)
                by_key = _by_key(segments, name)
                _check_has_all(by_key, name, first, first_name)
                _check_has_all(first_by_key, first_name, segments, name)
                in_order = [by_key[key] for key in first_keys]
        aligned.append([segment.text for segment in in_order])
    return aligned


def _has_ids(segments: Sequence[Segment]) -> bool:
    """Return whether all segments have an id, and a document unless their ids are unique."""
    numbers = {segment.number for segment in segments}
    documents = {segment.document for segment in segments}
    has_unique_ids = len(numbers) == len(segments)
    return "" not in numbers and (has_unique_ids or "" not in documents)


def _check_has_all(
    by_key: Mapping[tuple[str, str], Segment], name: str, others: Sequence[Segment], other_name: str
) -> None:
    """Check that a file has all segments of another one.

    Args:
        name: What messages call the file.
        other_name: What messages call the other file.
    """
    missing = [segment for segment in others if segment.key not in by_key]
    if missing:
        raise UserError(
            f"{name} lacks {counted(len(missing), 'segment')} of {other_name}, such as "
            f"{missing[0]}; pass files of the same documents"
        )


def _by_key(segments: Sequence[Segment], name: str) -> dict[tuple[str, str], Segment]:
    """Return the segments of the file `name` by their keys, which must be different."""
    by_key: dict[tuple[str, str], Segment] = {}
    for segment in segments:
        if segment.key in by_key:
            raise UserError(
                f"{name} has {segment} twice; pass one file per system or reference, with each "
                "segment once"
            )
        by_key[segment.key] = segment
    return by_key


def _attribute(pattern: re.Pattern[str], tag: str) -> str:
    """Return the value of an attribute without quotation marks, or "" if the tag lacks it."""
    match = pattern.search(tag)
    return match[1].strip("\"'").strip() if match else ""


def _plain(segment: str, where: str) -> str:
    """Return the text of a segment of the file `where`, without markup."""
    try:
        # A reference such as &#10; can be a line feed.
        return html.unescape(" ".join(segment.split())).replace("\n", " ")
    except ValueError:  # Python parses no number of more than 4,300 digits
        raise UserError(f"{where}: a character reference (&#...;) has too many digits") from None
