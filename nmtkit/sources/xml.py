"""Texts in XML: translation memories (TMX 1.4), and the test sets of WMT since 2021."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated
from xml.etree.ElementTree import Element

from pydantic import Field

from nmtkit.sources.formats import is_markup
from nmtkit.sources.signatures import check_is_text
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import HEAD_BYTES, TextFile
from nmtkit.sources.variants import Variants, listed
from nmtkit.sources.xml_stream import elements
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

Segments = dict[tuple[str, str], str]  # by the names of document and segment
# Inline elements of TMX. The content of codes, which belong to the format of the original document,
# is not text, but a sub-flow in them, such as a footnote or a title, is.
TEXT = {"hi", "sub"}
PAIRED_CODES = {"bpt", "ept"}  # format the text between them, also within a word
PLACEHOLDERS = {"it", "ph", "ut"}  # stand for something: a line break, an image, a value
GAP = "\0"  # in place of a placeholder: a character that XML does not allow


class Tmx(Source):
    """A translation memory; units that lack a language are skipped."""

    key = "tmx"
    path_keys = ("tmx",)
    title = "a translation memory"
    form = "XML"

    tmx: str

    @classmethod
    def recognizes(cls, head: str) -> bool:
        return is_markup(head) and re.match(r"\s*(<[?!][^>]*>\s*)*<tmx[\s>]", head) is not None

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        [text] = texts
        for unit in elements(_xml_blocks(text), str(text), "tu", root="tmx"):
            segments: list[tuple[str, str]] = []
            for variant in unit.iter("tuv"):
                lang = variant.get("xml:lang", "") or variant.get("lang", "")  # as in TMX 1.1
                for segment in variant.iter("seg"):
                    content = _fill_gaps("".join(_text(segment)), lang)
                    segments.append((lang, " ".join(content.split())))
            if segments and (pair := variants.choose(segments, str(text))):
                yield pair


def _xml_blocks(text: TextFile) -> Iterator[bytes]:
    """Yield the bytes of a text, and refuse what is not XML in any encoding."""
    is_first = True
    for block in text.blocks():
        if is_first:
            check_is_text(block[:HEAD_BYTES], text, is_xml=True)
            is_first = False
        yield block


def _text(element: Element, is_text: bool = True) -> Iterator[str]:
    """Yield the text of an element; a sub-flow has a space on either side."""
    if is_text:
        yield element.text or ""
    for child in element:
        space = " " if child.tag == "sub" else ""
        yield GAP if child.tag in PLACEHOLDERS else space
        is_code = child.tag in PAIRED_CODES | PLACEHOLDERS
        yield from _text(child, child.tag in TEXT or (is_text and not is_code))
        yield space + (child.tail or "") * is_text


def _fill_gaps(text: str, lang: str) -> str:
    """Put a space for each placeholder between two words, in a language that has spaces."""
    language = Language.named(lang)
    is_spaced = language is None or language.is_spaced
    before, *rest = re.split(f"{GAP}+", text)
    filled = before
    for part in rest:
        is_between_words = _is_of_word(filled[-1:]) and _is_of_word(part[:1])
        filled += f" {part}" if is_spaced and is_between_words else part
    return filled


def _is_of_word(character: str) -> bool:
    """Return whether a character is a letter, with its marks, or a digit."""
    return bool(character) and unicodedata.category(character)[0] in "LMN"


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
    for document in elements(_xml_blocks(text), str(text), "doc"):
        if "testsuite" not in document.attrib:
            for side in (*document.iter("src"), *document.iter("ref")):
                for segment in side.iter("seg"):
                    content = " ".join("".join(segment.itertext()).split())
                    yield document.get("id", ""), side, segment.get("id", ""), content
