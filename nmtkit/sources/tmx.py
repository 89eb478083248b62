"""Translation memories: TMX 1.4."""

import re
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.sources.xml_stream import elements

# Inline elements. The content of codes, which belong to the format of the original document, is not
# text, but a sub-flow in them, such as a footnote or a title, is.
TEXT = {"hi", "sub"}
CODES = {"bpt", "ept", "it", "ph", "ut"}


class Tmx(Source):
    """A translation memory; units that lack a language are skipped."""

    key = "tmx"
    path_keys = ("tmx",)
    title = "a translation memory"
    form = "XML"

    tmx: str

    @classmethod
    def recognizes(cls, head: str) -> bool:
        return re.match(r"\s*(<[?!][^>]*>\s*)*<tmx[\s>]", head) is not None

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        [text] = texts
        for unit in elements(text.blocks(), str(text), "tu", root="tmx"):
            segments = [
                (_language(variant), " ".join("".join(_text(segment)).split()))
                for variant in unit.iter("tuv")
                for segment in variant.iter("seg")
            ]
            if segments and (pair := variants.choose(segments, str(text))):
                yield pair


def _language(variant: Element) -> str:
    return variant.get("xml:lang", "") or variant.get("lang", "")  # TMX 1.1 has no "xml:"


def _text(element: Element, is_text: bool = True) -> Iterator[str]:
    """Yield the text of an element; a sub-flow has a space on either side."""
    if is_text:
        yield element.text or ""
    for child in element:
        space = " " if child.tag == "sub" else ""
        yield space
        yield from _text(child, child.tag in TEXT or (is_text and child.tag not in CODES))
        yield space + (child.tail or "") * is_text
