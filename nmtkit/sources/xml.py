"""Texts in XML: translation memories (TMX 1.4), and the test sets of WMT since 2021."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated
from xml.etree.ElementTree import Element

from pydantic import Field

from nmtkit.errors import UserError
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants, listed
from nmtkit.sources.xml_stream import elements

Segments = dict[tuple[str, str], str]  # by the names of document and segment
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
            segments: list[tuple[str, str]] = []
            for variant in unit.iter("tuv"):
                lang = variant.get("xml:lang", "") or variant.get("lang", "")  # as in TMX 1.1
                found = ("".join(_text(segment)) for segment in variant.iter("seg"))
                segments += ((lang, " ".join(each.split())) for each in found)
            if segments and (pair := variants.choose(segments, str(text))):
                yield pair


def _text(element: Element, is_text: bool = True) -> Iterator[str]:
    """Yield the text of an element; a sub-flow has a space on either side."""
    if is_text:
        yield element.text or ""
    for child in element:
        space = " " if child.tag == "sub" else ""
        yield space
        yield from _text(child, child.tag in TEXT or (is_text and child.tag not in CODES))
        yield space + (child.tail or "") * is_text


class WmtXml(Source):
    """A test set in XML, in one file or in several, with as many references as translators."""

    key = "xml"
    path_keys = ("xml",)
    title = "XML of WMT"
    form = "XML"

    xml: str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]

    @classmethod
    def recognizes(cls, head: str) -> bool:
        tags = set(re.findall(r"<(\w+)", head))
        return "doc" in tags and bool(tags & {"src", "ref"}) and "seg" in tags

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield each segment with all references; those that are not complete are counted."""
        sides = _sides(texts)
        where = listed(map(str, texts))
        langs = list(dict.fromkeys(lang for lang, _ in sides))
        src_lang, tgt_lang = variants.choose_names(langs, where)
        [src, *_] = (each for (lang, _), each in sides.items() if lang == src_lang)
        references = {who: each for (lang, who), each in sides.items() if lang == tgt_lang}
        most = max(references.values(), key=lambda each: sum(bool(each.get(key)) for key in src))
        keys = [key for key in src if most.get(key)]
        whole = [each for each in references.values() if all(each.get(key) for key in keys)]
        if len(keys) < len(src):
            variants.skipped["without a reference"] += len(src) - len(keys)
        for who, each in references.items():
            if each not in whole:
                variants.skipped[f"of the partial references by {who or 'nobody'}"] += len(each)
        for key in keys:
            yield (src[key], *(each[key] for each in whole))


def _sides(texts: Sequence[TextFile]) -> dict[tuple[str, str], Segments]:
    sides: dict[tuple[str, str], Segments] = {}
    for text in texts:
        for document, side, number, segment in _segments(text):
            lang = side.get("lang", "")
            translator = "" if side.tag == "src" else side.get("translator", "")
            segments = sides.setdefault((lang, translator), {})
            if not number or segments.setdefault((document, number), segment) != segment:
                raise UserError(
                    f"{text} has a segment {number[:80]!r} of document {document[:80]} in {lang} "
                    "without an id, or with two texts; give each document once"
                )
    return sides


def _segments(text: TextFile) -> Iterator[tuple[str, Element, str, str]]:
    """Yield document, side, number and text; systems and test suites are passed over."""
    for document in elements(text.blocks(), str(text), "doc"):
        if "testsuite" not in document.attrib:
            for side in (*document.iter("src"), *document.iter("ref")):
                for segment in side.iter("seg"):
                    content = " ".join("".join(segment.itertext()).split())
                    yield document.get("id", ""), side, segment.get("id", ""), content
