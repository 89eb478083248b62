"""What a file is, by its first bytes: nothing else is read as plain text."""

import re

from nmtkit.sources.text import TextFile

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
BINARY = frozenset(form for form, _ in _BINARY.values())
_MIN_NULS = 0.2  # of the bytes of UTF-16: Latin letters have one each
_SGML = re.compile(r"<(srcset|refset|tstset)\b|^\s*<(doc|seg)\b[^<>]*>", re.IGNORECASE)
_XML = re.compile(r"\s*<(\?xml|!DOCTYPE)\b", re.IGNORECASE)
_TAG = re.compile(r"\s*</?[A-Za-z!?][^<>]*>")
_MIN_TAGGED = 0.8  # of the lines of XML without a declaration begin with a tag
_JSON = re.compile(r'\s*(\{\s*"|\[\s*[{"]|[\[{]\s*\n)')


def head_of(text: TextFile) -> bytes:
    return next(text.blocks(), b"")[:HEAD_BYTES]


def form_of(head: bytes) -> tuple[str, str]:
    """Return what a text is that begins with `head`, and how it can be used nevertheless."""
    for magic, form in _BINARY.items():
        if head.startswith(magic):
            return form
    if head.count(0) > _MIN_NULS * len(head):
        return "UTF-16", "convert it to UTF-8"
    text = decoded(head)
    if _SGML.search(text[:2_000]):
        return "SGML", "add .sgm to its name"
    lines = [line for line in text.split("\n")[:100] if line.strip()]
    n_tagged = sum(bool(_TAG.match(line)) for line in lines)
    if _XML.match(text) or n_tagged > _MIN_TAGGED * len(lines):
        return "XML", "extract its text"
    if _JSON.match(text):
        return "JSON", "name it as jsonl in a recipe if each line is an object"
    return PLAIN, ""


def decoded(head: bytes) -> str:
    """Return the whole lines of a head as text."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    return text.rpartition("\n")[0] if len(head) == HEAD_BYTES else text
