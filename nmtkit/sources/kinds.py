"""The registry of all kinds of sources: the kind of a table in a recipe, and of a user's file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from nmtkit.sources.dataset import Dataset, HubSource
from nmtkit.sources.file_pair import FilePair, OpusZip
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.sgml import align_segments
from nmtkit.sources.source import Source
from nmtkit.sources.table import Csv, Tsv
from nmtkit.sources.ted import Ted
from nmtkit.sources.text_file import TextFile, file_segments, read_lines, text_suffix
from nmtkit.sources.text_formats import SGML, XML, detect_format, find_keys
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.utf8 import HEAD_BYTES, check_is_text
from nmtkit.sources.xml import Tmx, WmtXml
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Section, Weight

# The registry: recipes, the detection of formats and `nmtkit new` find kinds of sources here.
KINDS: tuple[type[Source], ...] = (
    FilePair,
    Jsonl,
    Tmx,
    WmtXml,
    Tsv,
    Csv,
    OpusZip,
    Dataset,
    HubSource,
    Treebank,
    Ted,
)
TABLES = (Tsv, Csv)
ONLY_PLAIN = "this command reads plain text, one line per sentence or paragraph"
LIBRARY_FORMS = ("zip", "Parquet")


class WeightedCorpus(Section):
    """A corpus of the catalog with a weight."""

    corpus: str
    weight: Weight = 1.0


def _source(value: object) -> str | WeightedCorpus | Source:
    """Parse a value of a recipe.

    Raises:
        ValueError: It is neither a name nor a table with the keys of one kind.
    """
    if isinstance(value, str | WeightedCorpus | Source):
        return value
    if not isinstance(value, dict):
        raise ValueError("Input should be a string, or a table such as { src = .., tgt = .. }")
    if "corpus" in value:
        return WeightedCorpus.model_validate(value)
    return parse_source(value)


def parse_source(table: Mapping[str, object]) -> Source:
    """Parse a table with the keys of one kind of source."""
    kind = next((kind for kind in KINDS if kind.key in table), FilePair)
    return kind.model_validate(table)


# A name in the catalog, or text from elsewhere.
AnySource = Annotated[SerializeAsAny[str | WeightedCorpus | Source], PlainValidator(_source)]


def source_name(source: str | WeightedCorpus | Source) -> str:
    """Return the name of a source: that in the catalog or the recipe, or one from its files."""
    if isinstance(source, Source):
        name = source.name or source.default_name()
    else:
        name = source if isinstance(source, str) else source.corpus
    # Folders of test sets have this name.
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip(".") or "text"


def check_form(
    text: TextFile,
    kind: type[Source] = FilePair,
    *,
    first: bytes | None = None,
    is_parallel: bool = True,
) -> None:
    """Refuse a text that is in another format than it is read in.

    Args:
        kind: The kind of source that reads it, by default plain text.
        first: The first bytes of the text, if it can be read only once.
        is_parallel: Whether it is part of parallel text, for which there are other readers.

    Raises:
        UserError: It is in another format; the message has its name and a remedy.
    """
    # The library that reads it reports other formats.
    expected = kind.form
    if expected in LIBRARY_FORMS:
        return
    head = (next(text.blocks(), b"") if first is None else first)[:HEAD_BYTES]
    check_is_text(head, text, is_xml=expected == XML, is_parallel=is_parallel)
    content = _whole_lines(head)
    if text.is_plain or kind.recognizes(content):
        return
    detected = detect_format(content, text_suffix(text.name))
    for other in KINDS:
        # Texts in other formats contain tabs and commas, too.
        if other.recognizes(content) and (other not in TABLES or detected is None):
            name, to_plain = other.title, other.to_plain
            remedy = f"use the key {other.key} in a recipe"
            if other.has_option:
                remedy += f", or pass --{other.key} to `nmtkit new`"
            break
    else:
        if detected is None or detected.name == expected:
            return
        if detected.name == SGML and text.is_sgml:
            return
        name, to_plain, remedy = detected.name, detected.to_plain, detected.remedy
    if not is_parallel and name != SGML:
        remedy = f"{ONLY_PLAIN}: {to_plain}"
    # Only the detection of text can be wrong about a format that the user knows.
    if not is_parallel:
        remedy += "; if it is plain text, pass --plain"
    elif kind is FilePair:
        remedy += "; if it is plain text, pass --plain (in a recipe, plain = true)"
    raise UserError(f"{text} is not {kind.title}, but looks like {name}; {remedy}")


def check_formats(texts: Sequence[TextFile], kind: type[Source]) -> None:
    """Refuse the files of a text that are in another format than they are read in.

    Args:
        texts: The files; of a `FilePair`, the source first.
        kind: The kind of source that reads them.

    Raises:
        UserError: A file is in another format, or plain text has keys at the start of its lines.
    """
    # Lines with keys may look like a table, too, but then their message has the better remedy.
    if kind is FilePair and len(texts) > 1:
        _check_keys(texts)
    for text in texts:
        check_form(text, kind)


def _check_keys(texts: Sequence[TextFile]) -> None:
    """Refuse a text and its translation if nearly all lines begin with the same keys.

    Args:
        texts: Files of plain text, the source first.

    Raises:
        UserError: Lines have keys; the message has one of them.
    """
    if any(text.is_plain or text.is_sgml for text in texts):
        return
    contents = [_whole_lines(next(text.blocks(), b"")[:HEAD_BYTES]) for text in texts]
    # Other formats have a better remedy.
    if any(
        detect_format(content, text_suffix(text.name))
        for text, content in zip(texts, contents, strict=True)
    ):
        return
    src, *translations = (content.split("\n") for content in contents)
    for text, lines in zip(texts[1:], translations, strict=True):
        found = find_keys(list(zip(src, lines, strict=False)))
        if found is not None:
            raise UserError(
                f"{texts[0]} and {text} begin their lines with the same key or number ({found}); "
                "remove it from both files, or pass --plain (in a recipe, plain = true) if it is "
                "part of the sentences"
            )


def read_plain(
    path: Path, *, is_plain: bool = False, in_order_of: Path | None = None
) -> Iterator[str]:
    """Yield the lines of a file that must be plain text, or the segments of SGML.

    Args:
        path: The file, or a pipe.
        is_plain: Read lines of text, whatever the file looks like.
        in_order_of: Another file. If both are SGML, segments are in its order, matched by their
            ids.
    """
    text = TextFile(path, is_plain=is_plain)
    blocks = text.blocks()
    first = next(blocks, b"")  # a stream can be read only once
    check_form(text, first=first, is_parallel=False)
    other = None if in_order_of is None else TextFile(in_order_of, is_plain=is_plain)
    if other is not None and other.is_sgml and text.is_sgml:
        segments = [file_segments(other), file_segments(text)]
        _, lines = align_segments(segments, [str(in_order_of), str(path)])
        return iter(lines)
    return read_lines(text, chain([first], blocks))


def _whole_lines(head: bytes) -> str:
    """Return the text of the first bytes, without a line that is cut at their end."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    if len(head) == HEAD_BYTES and "\n" in text:
        return text.rpartition("\n")[0]
    return text
