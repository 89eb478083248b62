"""Translation memories: their text, and hostile XML."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Row
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.xml import Tmx
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language


@dataclass(frozen=True)
class Stream(TextFile):
    content: Iterable[bytes] = ()

    def blocks(self) -> Iterator[bytes]:
        return iter(self.content)


def read_units(blocks: Iterator[bytes]) -> Iterator[Row]:
    variants = Variants(Language.of("en"), Language.of("de"))
    return Tmx(tmx="a.tmx").rows([Stream(Path("a.tmx"), content=blocks)], variants)


def units(content: str | bytes, size: int = 7) -> list[Row]:
    data = content.encode() if isinstance(content, str) else content
    blocks = (data[start : start + size] for start in range(0, len(data), size))
    return list(read_units(blocks))


def document(*units_of_variants: str, doctype: str = "") -> str:
    """A translation memory; an argument contains the variants of one unit."""
    body = "\n".join(f"<tu>{variants}</tu>" for variants in units_of_variants)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}<tmx version="1.4">\n'
        f'<header srclang="en"><note>no text</note></header>\n<body>\n{body}\n</body>\n</tmx>\n'
    )


def variant(lang: str, segment: str, attribute: str = "xml:lang") -> str:
    return f'<tuv {attribute}="{lang}"><prop type="x">no text</prop><seg>{segment}</seg></tuv>'


def pair(english: str, german: str = "ja") -> str:
    return variant("en", english) + variant("de", german)


# Text


def test_units_are_in_order() -> None:
    swapped = variant("de", "Grüße &amp;\n  mehr") + variant("EN-us", "x", "lang")
    content = document(pair("yes"), variant("en", "a") + variant("fr", "b"), "", swapped)
    assert units(content) == [("yes", "ja"), ("x", "Grüße & mehr")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("<bpt i='1'>&lt;b&gt;</bpt>W<ept i='1'>&lt;/b&gt;</ept>ord", "Word"),
        ("one<ph>&lt;br/&gt;</ph> two <it pos='begin'>{</it>three<ut>}</ut>", "one two three"),
        ("a <hi>high <hi>light</hi></hi>ed", "a high lighted"),
        ("see<ph>&lt;img alt='<sub>the <ph>{</ph>dog</sub>'&gt;</ph>here", "see the dog here"),
        ("Press<ph>{0}</ph>to<it pos='end'/>go<ut>{tab}</ut>on", "Press to go on"),
        ("un<bpt i='1'>{</bpt>believ<ept i='1'>}</ept>able", "unbelievable"),
        ("a<bpt i='1'/><ph/><ept i='1'/>b<ph/><ph/>c", "a b c"),
        ("Press <ph/>to<ph/>, or<ph/> (<ph/>no<ph/>).<ph/>", "Press to, or (no)."),
        ("\u0939\u093f<ph/>\u0939", "\u0939\u093f \u0939"),
        ("100<ph>%d</ph>a", "100 a"),
        ("<![CDATA[a < b]]> &#38; c &lt;d>", "a < b & c <d>"),
        ("<!-- no text -->a<?no text?>", "a"),
        ("  a\t b \r\n\u2028c\u0085 ", "a b c"),
    ],
)
def test_codes_are_removed(segment: str, text: str) -> None:
    assert units(document(pair(segment))) == [(text, "ja")]


def test_placeholder_between_words() -> None:
    content = document(variant("ja", "按<ph>{0}</ph>键") + variant("de", "ja<ph/>nein"))
    variants = Variants(Language.of("ja"), Language.of("de"))
    rows = Tmx(tmx="a").rows([Stream(Path("a"), content=[content.encode()])], variants)
    assert list(rows) == [("按键", "ja nein")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_declared_encodings(encoding: str) -> None:
    content = document(pair("naïve", "Grüße")).replace("UTF-8", encoding.removesuffix("-sig"))
    assert units(content.encode(encoding)) == [("naïve", "Grüße")]


# Errors


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1: no element found"),
        (document(pair("yes")).encode()[:-12], "line 6: unclosed token"),
        (document(pair("a & b")).encode(), "line 5: not well-formed"),
        (document(pair("yes"), pair("Grüße")).encode("latin-1"), "line 6: not well-formed"),
        (document(pair("a&nbsp;b")).encode(), "line 5: undefined entity"),
        (b"<html>\n</html>", "line 1: the file starts with <html>, not <tmx>"),
        (b'<?xml version="1.0" encoding="klingon"?><tmx/>', "unknown encoding: klingon"),
        (b'<?xml version="1.0" encoding="gb2312"?><tmx/>', "multi-byte encodings .* to UTF-8"),
    ],
)
def test_invalid_memory_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=rf"^a\.tmx(, |: ){reason}"):
        units(content)


LAUGHS = "".join(f'<!ENTITY lol{i} "{f"&lol{i - 1};" * 10}">' for i in range(1, 10))
LONG_ATTRIBUTE = f'<!ATTLIST hi x CDATA "{"x" * 10_000}">'  # added to every <hi/> of the text


@pytest.mark.parametrize("size", [7, 2**18])
@pytest.mark.parametrize(
    ("declarations", "segment"),
    [
        (f'<!ENTITY lol0 "lol">{LAUGHS}', "&lol9;"),
        ('<!ENTITY secret SYSTEM "file:///etc/passwd">', "&secret;"),
        ('<!ENTITY % more SYSTEM "file:///etc/passwd"> %more;', "yes"),
        (LONG_ATTRIBUTE, "<hi/>" * 10_000),
    ],
)
def test_document_type_is_refused(declarations: str, segment: str, size: int) -> None:
    content = document(pair(segment), doctype=f"<!DOCTYPE tmx [{declarations}]>\n")
    with pytest.raises(UserError, match=r"a\.tmx, line 2: declarations"):
        units(content, size=size)


@pytest.mark.parametrize(
    "start", ["<tmx><tu><tuv lang='en'><seg>", "<tmx><!--", "<tmx a='", "<!DOCTYPE tmx '"]
)
def test_endless_memory_is_refused(start: str) -> None:
    blocks = iter([start.encode(), *([b"a" * 2**18] * 1_000)])
    with pytest.raises(UserError, match=r"a\.tmx, line 1: .*16,777,216"):
        list(read_units(blocks))
    assert sum(1 for _ in blocks) > 900


def test_deeply_nested_tags_are_refused() -> None:
    with pytest.raises(UserError, match=r"a\.tmx, line 1: .*\b100\b"):
        units("<tmx>" + "<hi>" * 200)
    segment = "<hi>" * 90 + "yes" + "</hi>" * 90
    assert units(document(pair(segment))) == [("yes", "ja")]


def test_units_without_segments_are_counted() -> None:
    variants = Variants(Language.of("en"), Language.of("de"))
    bare = '<tuv xml:lang="en">house</tuv><tuv xml:lang="de">Haus</tuv>'
    content = document(pair("one"), bare, "", pair("two")).encode()
    rows = list(Tmx(tmx="a.tmx").rows([Stream(Path("a.tmx"), content=[content])], variants))
    assert rows == [("one", "ja"), ("two", "ja")]
    assert variants.skipped.total() == 2
