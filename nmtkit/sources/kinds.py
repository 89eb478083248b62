"""The kinds of sources, and which of them a table of a recipe is, or a file by its first bytes."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import PlainValidator, SerializeAsAny

from nmtkit.errors import UserError
from nmtkit.schema import Section, Weight
from nmtkit.sources.file_pair import FilePair, OpusZip
from nmtkit.sources.hub import Dataset, HubSource
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.source import Source
from nmtkit.sources.table import Csv, Tsv
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.xml import Tmx, WmtXml

KINDS: tuple[type[Source], ...] = (
    *(FilePair, Tsv, Csv, Jsonl, Tmx, WmtXml, OpusZip, Dataset, HubSource, Treebank),
)
OF_LIBRARIES = ("zip", "Parquet")  # forms of files, which those libraries check that read them
PLAIN = "plain text"
HEAD_BYTES = 2**16
_BINARY = {
    b"\x1f\x8b": ("gzip", "add .gz to its name"),
    b"BZh": ("bzip2", "add .bz2 to its name"),
    b"\xfd7zXZ\x00": ("xz", "add .xz to its name"),
    b"\x28\xb5\x2f\xfd": ("zstd", "add .zst to its name"),
    b"PK\x03\x04": ("zip", "unpack it"),
    b"PAR1": ("Parquet", "name it as a dataset in a recipe"),
    b"ARROW1": ("Arrow", "name the folder that it is in as a dataset in a recipe"),
    b"%PDF": ("PDF", "extract its text"),
    b"\xff\xfe": ("UTF-16", "convert it to UTF-8"),
    b"\xfe\xff": ("UTF-16", "convert it to UTF-8"),
}
_MIN_NULS = 0.2  # of the bytes of UTF-16: Latin letters have one each
_SGML = re.compile(r"<(srcset|refset|tstset)\b|^\s*<(doc|seg)\b[^<>]*>", re.IGNORECASE)
_XML = re.compile(r"\s*<(\?xml|!DOCTYPE)\b", re.IGNORECASE)
_TAG = re.compile(r"\s*</?[A-Za-z!?][^<>]*>")
_MIN_TAGGED = 0.8  # of the lines of XML without a declaration begin with a tag
_JSON = re.compile(r'\s*(\{\s*"|\[\s*[{"]|[\[{]\s*\n)')


class Named(Section):
    """A corpus of the catalog, in a table that says more than its name."""

    corpus: str
    weight: Weight = 1.0


def _source(value: object) -> str | Named | Source:
    if isinstance(value, str | Named | Source):
        return value
    if not isinstance(value, dict):
        raise ValueError("Input should be a string, or a table such as { src = .., tgt = .. }")
    if "corpus" in value:
        return Named.model_validate(value)
    kind = next((kind for kind in KINDS if kind.key in value), FilePair)
    return kind.model_validate(value)


# A name in the catalog, or text from elsewhere.
AnySource = Annotated[SerializeAsAny[str | Named | Source], PlainValidator(_source)]


def name_of(source: str | Named | Source) -> str:
    """What a source is called: in the catalog, by the user, or by its files."""
    if isinstance(source, Source):
        own = source.name or source.own_name()
    else:
        own = source if isinstance(source, str) else source.corpus
    return re.sub(r"[^A-Za-z0-9._-]+", "-", own).lstrip(".") or "text"


def check_form(text: TextFile, source: Source | None = None, first: bytes | None = None) -> None:
    """Refuse a text that looks like anything other than what it is read as; None is plain text."""
    expected = PLAIN if source is None else source.form
    if expected in OF_LIBRARIES:
        return
    head = (next(text.blocks(), b"") if first is None else first)[:HEAD_BYTES]
    form, way_out = _form_of(head)
    kind = next((kind for kind in KINDS if kind.recognizes(_decoded(head))), None)
    if form not in dict(_BINARY.values()) and kind is not None and not isinstance(source, kind):
        raise UserError(
            f"{text} looks like {kind.title}; name it as {kind.key} in a recipe, or extract text"
        )
    is_fine = {PLAIN, expected, "SGML" if text.is_sgml else PLAIN}
    if form not in is_fine and not (expected == "XML" and form == "UTF-16"):
        raise UserError(f"{text} is not {expected}, but looks like {form}; {way_out}")


def read_plain(path: Path) -> Iterator[str]:
    text = TextFile(path)
    blocks = text.blocks()
    first = next(blocks, b"")  # of a stream, which can be read once
    check_form(text, first=first)
    return read_lines(text, chain([first], blocks))


def _form_of(head: bytes) -> tuple[str, str]:
    """Return the form of a text that begins with `head`, and how to make it usable."""
    for magic, form in _BINARY.items():
        if head.startswith(magic):
            return form
    if head.count(0) > _MIN_NULS * len(head):
        return "UTF-16", "convert it to UTF-8"
    text = _decoded(head)
    if _SGML.search(text[:2_000]):
        return "SGML", "add .sgm to its name"
    lines = [line for line in text.split("\n")[:100] if line.strip()]
    n_tagged = sum(bool(_TAG.match(line)) for line in lines)
    if _XML.match(text) or n_tagged > _MIN_TAGGED * len(lines):
        return "XML", "extract its text"
    if _JSON.match(text):
        return "JSON", "name it as jsonl in a recipe if each line is an object"
    return PLAIN, ""


def _decoded(head: bytes) -> str:
    """Return the whole lines of a head as text."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    return text.rpartition("\n")[0] if len(head) == HEAD_BYTES else text
