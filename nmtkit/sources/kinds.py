"""The kinds of sources, and which of them a table of a recipe or a file is."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from nmtkit.errors import UserError
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.forms import BINARY, HEAD_BYTES, PLAIN, decoded, form_of, head_of
from nmtkit.sources.hub import Dataset, HubSource
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.opus_zip import OpusZip
from nmtkit.sources.source import Source
from nmtkit.sources.table import Csv, Tsv
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.tmx import Tmx
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.wmt_xml import WmtXml

KINDS: tuple[type[Source], ...] = (
    FilePair,
    Tsv,
    Csv,
    Jsonl,
    Tmx,
    WmtXml,
    OpusZip,
    Dataset,
    HubSource,
    Treebank,
)
OF_LIBRARIES = ("zip", "Parquet")  # forms of files, which those libraries check that read them


def _source(value: object) -> str | Source:
    if isinstance(value, str | Source):
        return value
    if not isinstance(value, dict):
        raise ValueError(
            "Input should be a valid string, or a table such as { src = .., tgt = .. }"
        )
    kind = next((kind for kind in KINDS if kind.key in value), FilePair)
    return kind.model_validate(value)


# A name in the catalog, or text from elsewhere.
AnySource = Annotated[SerializeAsAny[str | Source], PlainValidator(_source)]


def name_of(source: str | Source) -> str:
    """What a source is called: in the catalog, by the user, or by its files."""
    if isinstance(source, str):
        return source
    raw = re.sub(r"[^A-Za-z0-9._-]+", "-", source.own_name()).lstrip(".") or "text"
    return source.name or raw


def check_form(text: TextFile, source: Source | None = None) -> None:
    """Refuse a text that looks like something else than it is read as.

    Args:
        text: The file.
        source: What it is read as; None is plain text.

    Raises:
        UserError: It cannot be read, or looks like another kind of source.
    """
    if source is not None and source.form in OF_LIBRARIES:
        return
    _check_form(head_of(text), text, source)


def _check_form(head: bytes, text: TextFile, source: Source | None) -> None:
    form, way_out = form_of(head)
    expected = PLAIN if source is None else source.form
    kind = next((kind for kind in KINDS if kind.recognizes(decoded(head))), None)
    if form not in BINARY and kind is not None and not isinstance(source, kind):
        raise UserError(
            f"{text} looks like {kind.title}; name it as {kind.key} in a recipe, or extract the "
            "lines of each language"
        )
    is_fine = {PLAIN, expected, "SGML" if text.is_sgml else PLAIN}
    if form not in is_fine and not (expected == "XML" and form == "UTF-16"):
        raise UserError(f"{text} is not {expected}, but looks like {form}; {way_out}")


def read_plain(path: Path) -> Iterator[str]:
    """Yield the lines of a user's own text.

    Raises:
        UserError: It is missing, damaged, unsafe, not UTF-8, or looks like anything but text.
    """
    text = TextFile(path)
    blocks = text.blocks()
    first = next(blocks, b"")  # of a stream, which can be read once
    _check_form(first[:HEAD_BYTES], text, None)
    return read_lines(text, chain([first], blocks))
