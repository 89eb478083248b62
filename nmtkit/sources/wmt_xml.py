"""Test sets of WMT since 2021: XML with documents, their source and references by translators."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from nmtkit.errors import UserError
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants, listed
from nmtkit.sources.xml_stream import Handler, RefusedError, parse

Segments = dict[tuple[str, str], str]  # by the names of document and segment


class WmtXml(Source):
    """A test set in XML, in one file or in several, with as many references as translators."""

    key = "xml"
    path_keys = ("xml",)
    title = "XML of WMT"
    form = "XML"

    xml: str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether it has documents with sources or references."""
        tags = set(re.findall(r"<(\w+)", head))
        return "doc" in tags and bool(tags & {"src", "ref"}) and "seg" in tags

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield each segment with its reference by each translator.

        Segments without a reference and translators of a part are left out, and counted.
        """
        sides: dict[tuple[str, str], Segments] = {}  # by language and translator
        for text in texts:
            for side in parse(text.blocks(), str(text), _Sides()):
                segments = sides.setdefault((side.lang, side.translator), {})
                for key, segment in side.segments.items():
                    if segments.setdefault(key, segment) != segment:
                        raise UserError(
                            f"{text} has two texts of segment {key[1]} of document {key[0]} in "
                            f"{side.lang}; give each document once"
                        )
        where = listed(map(str, texts))
        langs = list(dict.fromkeys(lang for lang, _ in sides))
        src_lang, tgt_lang = variants.choose_names(langs, where)
        [src, *_] = (each for (lang, _), each in sides.items() if lang == src_lang)
        references = {who: each for (lang, who), each in sides.items() if lang == tgt_lang}
        most = max(references.values(), key=lambda each: sum(bool(each.get(key)) for key in src))
        keys = [key for key in src if most.get(key)]
        whole = [each for each in references.values() if all(each.get(key) for key in keys)]
        if len(keys) < len(src):
            variants.left_out["without a reference"] += len(src) - len(keys)
        for who, each in references.items():
            if each not in whole:
                variants.left_out[f"of the partial references by {who or 'nobody'}"] += len(each)
        for key in keys:
            yield (src[key], *(each[key] for each in whole))


@dataclass
class _Side:
    """The source of a document, or its reference by one translator."""

    lang: str
    translator: str
    segments: Segments = field(default_factory=dict)


class _Sides(Handler[_Side]):
    """Collects the segments of <src> and <ref>; systems and test suites are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._doc = self._seg = ""
        self._side: _Side | None = None
        self._is_segment = self._is_of_set = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "doc":
            self._doc = attributes.get("id", "")
            self._is_of_set = "testsuite" not in attributes
        elif tag in ("src", "ref", "hyp"):
            lang, translator = attributes.get("lang", ""), attributes.get("translator", "")
            side = _Side(lang, "" if tag == "src" else translator)
            self._side = side if tag != "hyp" and self._is_of_set else None
        elif tag == "seg" and self._side:
            self._seg = attributes.get("id", "")
            self._is_segment = True
            self.begin_segment()

    def end(self, tag: str) -> None:
        if tag == "seg" and self._side:
            key = self._doc, self._seg
            if not self._seg or key in self._side.segments:
                raise RefusedError(
                    f"a segment of document {self._doc[:80]} has no id of its own, but "
                    f"{self._seg[:80]!r}"
                )
            self._side.segments[key] = self.segment()
            self._is_segment = False
        elif tag in ("src", "ref") and self._side:
            self.finished.append(self._side)
            self._side = None

    def text(self, characters: str) -> None:
        if self._is_segment:
            self.add(characters)
