"""Translation memories: TMX 1.4."""

import re
from collections.abc import Iterator, Sequence

from nmtkit.sources.source import Pair, Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.sources.xml_stream import Handler, RefusedError, parse

# Inline elements. The content of codes, which belong to the format of the original document, is not
# text, but a sub-flow in them, such as a footnote or a title, is.
TEXT = {"seg", "hi", "sub"}
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
        """Return whether the outermost tag is that of TMX."""
        return re.match(r"\s*(<[?!][^>]*>\s*)*<tmx[\s>]", head) is not None

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the units in both languages, whitespace collapsed."""
        [text] = texts
        return parse(text.blocks(), str(text), _Units(variants, str(text)))


class _Units(Handler[Pair]):
    """Collects the segments of a unit."""

    def __init__(self, variants: Variants, where: str) -> None:
        super().__init__()
        self._variants, self._where = variants, where
        self._unit: list[tuple[str, str]] = []  # languages and segments
        self._lang = ""
        self._is_text = [False]  # of each element that is open

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.depth == 0 and tag != "tmx":
            raise RefusedError(f"not a translation memory: it starts with <{tag[:80]}>, not <tmx>")
        self._is_text.append(tag in TEXT or (tag not in CODES and self._is_text[-1]))
        if tag == "tu":
            self._unit = []
        elif tag == "tuv":  # TMX 1.1 has no "xml:"
            self._lang = attributes.get("xml:lang") or attributes.get("lang", "")
        elif tag == "seg":
            self.begin_segment()
        elif tag == "sub":
            self.add(" ")

    def end(self, tag: str) -> None:
        self._is_text.pop()
        if tag == "tu":
            if self._unit and (pair := self._variants.choose(self._unit, self._where)):
                self.finished.append(pair)
            self._unit = []
        elif tag == "seg":
            self._unit.append((self._lang, self.segment()))
        elif tag == "sub":
            self.add(" ")

    def text(self, characters: str) -> None:
        if self._is_text[-1]:
            self.add(characters)
