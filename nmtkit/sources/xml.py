"""Texts in XML: translation memories (TMX 1.4), and the test sets of WMT since 2021.

Files are read as a stream in bounded memory, without entities that a file itself declares.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from pydantic import Field

from nmtkit.sources.sides import TaggedText, Variants, choose_columns
from nmtkit.sources.source import DETECTED, Row, Source, expand_path
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.text_formats import is_markup
from nmtkit.sources.utf8 import HEAD_BYTES, check_is_text
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import join_names

N_FIRST_UNITS = 100  # languages are detected in them

# Inline elements of TMX. The content of codes is markup of the original document and not text,
# except for sub-flows in it, such as footnotes and titles.
TEXT_TAGS = {"hi", "sub"}
PAIRED_CODES = {"bpt", "ept"}  # format the text between them, also within a word
PLACEHOLDERS = {"it", "ph", "ut"}  # stand for something: a line break, an image, a value
GAP = "\0"  # marks a placeholder: XML does not allow this character
MAX_BYTES = 2**24  # of an element with its children, and of the content between two elements
MAX_DEPTH = 100  # of nested tags


class Tmx(Source):
    """A translation memory. Units that lack a language are skipped and counted."""

    key = "tmx"
    path_keys = ("tmx",)
    title = "a translation memory"
    to_plain = "copy its segments in one language to a text file, one per line"
    form = "XML"
    has_languages = True
    has_option = True

    tmx: str

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether a text that begins with `head` is markup with the root <tmx>."""
        root = re.match(r"\s*(<[?!][^>]*>\s*)*<(\w+:)?tmx[\s>]", head)
        return root is not None and is_markup(head)

    @classmethod
    def names_in(cls, path: str, _dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the tags of languages in the first units of a user's memory."""
        # A dict keeps the order of the file.
        tags: dict[str, None] = {}
        for unit in islice(_units(TextFile(expand_path(path))), N_FIRST_UNITS):
            tags.update(dict.fromkeys(lang for lang, _ in unit))
        return list(tags)

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the two sides of all units that have both; see `Source.rows`."""
        [text] = texts
        for unit in _units(text):
            pair = variants.choose(unit, str(text))
            if pair is not None:
                yield pair


def _units(text: TextFile) -> Iterator[list[TaggedText]]:
    """Yield the segments of each unit; a text without a segment is blank."""
    for element in elements(_xml_blocks(text), str(text), "tu", root="tmx"):
        unit = []
        for variant in element.iter("tuv"):
            # TMX 1.1 has no namespace.
            lang = variant.get("xml:lang", "") or variant.get("lang", "")
            segments = list(variant.iter("seg"))
            if not segments:
                unit.append((lang, ""))
            for segment in segments:
                content = _fill_gaps(_segment_text(segment), lang)
                unit.append((lang, " ".join(content.split())))
        yield unit


def _xml_blocks(text: TextFile) -> Iterator[bytes]:
    """Yield the bytes of a text, and refuse what is not XML in any encoding."""
    is_first = True
    for block in text.blocks():
        if is_first:
            check_is_text(block[:HEAD_BYTES], text, is_xml=True)
            is_first = False
        yield block


def _segment_text(element: Element, *, is_code: bool = False) -> str:
    """Return the text of a segment or inline element.

    Placeholders become `GAP`, and a sub-flow is separated by spaces from the text around it.

    Args:
        element: The element. Its tail is not part of it.
        is_code: Whether the element is a code. Then only its sub-flows are text.
    """
    text = "" if is_code else element.text or ""
    for child in element:
        is_sub_flow = child.tag == "sub"
        is_child_code = child.tag in PAIRED_CODES | PLACEHOLDERS
        if child.tag not in TEXT_TAGS:
            is_child_code = is_child_code or is_code
        content = _segment_text(child, is_code=is_child_code)
        # The gap is filled when the text on both sides of it is known.
        if child.tag in PLACEHOLDERS:
            text += GAP
        text += f" {content} " if is_sub_flow else content
        if not is_code:
            text += child.tail or ""
    return text


def _fill_gaps(text: str, lang: str) -> str:
    """Replace placeholders by a space between two words, in languages that have spaces.

    Args:
        lang: The tag of its language.
    """
    language = Language.from_name(lang)
    is_spaced = language is None or language.is_spaced
    first, *others = re.split(f"{GAP}+", text)
    filled = first
    for part in others:
        is_between_words = _is_in_word(filled[-1:]) and _is_in_word(part[:1])
        filled += f" {part}" if is_spaced and is_between_words else part
    return filled


def _is_in_word(character: str) -> bool:
    """Return whether a character is a letter, a mark on a letter, or a digit."""
    return bool(character) and unicodedata.category(character)[0] in "LMN"


SegmentKey = tuple[str, str]  # the ids of a document and of a segment in it


@dataclass
class _Side:
    """The source or one reference of a WMT test set.

    Attributes:
        lang: The tag of its language.
        translator: The name of the translator; empty for the source, and if it is not recorded.
        segments: The texts by their keys, in the order of the file.
    """

    lang: str
    translator: str
    segments: dict[SegmentKey, str] = field(default_factory=dict)


class WmtXml(Source):
    """A test set of WMT in one XML file or several, with one reference per translator."""

    key = "xml"
    path_keys = ("xml",)
    title = "XML of WMT"
    form = "XML"
    has_option = False
    has_languages = True

    xml: str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether a text that begins with `head` has the tags of a test set."""
        tags = set(re.findall(r"<(\w+)", head))
        return "doc" in tags and "seg" in tags and ("src" in tags or "ref" in tags)

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the segments with all complete references; see `Source.rows`.

        Segments without the reference that covers the most, and references that lack other
        segments, are skipped and counted.
        """
        sides, n_suites = _read_sides(texts)
        if n_suites:
            variants.skipped["of test suites"] += n_suites
        # References by several translators have the same language.
        langs = list(dict.fromkeys(side.lang for side in sides))
        where = join_names(map(str, texts))
        src_position, tgt_position = choose_columns(langs, variants.langs, where)
        src = next(side for side in sides if side.lang == langs[src_position])
        references = [side for side in sides if side.lang == langs[tgt_position]]

        # The reference that covers the most segments decides which ones are read.
        best: list[SegmentKey] = []
        for reference in references:
            keys = [key for key in src.segments if reference.segments.get(key)]
            if len(keys) > len(best):
                best = keys
        if len(best) < len(src.segments):
            variants.skipped["without a reference"] += len(src.segments) - len(best)
        complete = []
        for reference in references:
            if all(reference.segments.get(key) for key in best):
                complete.append(reference)
            else:
                name = reference.translator or "nobody"
                reason = f"of the partial references by {name}"
                variants.skipped[reason] += len(reference.segments)
        for key in best:
            targets = [reference.segments[key] for reference in complete]
            yield (src.segments[key], *targets)


def _read_sides(texts: Sequence[TextFile]) -> tuple[list[_Side], int]:
    """Read the source and the references of a test set.

    Returns:
        The sides, and the number of segments of test suites; these are not part of the test set.

    Raises:
        UserError: A segment has no id, or two texts.
    """
    sides: dict[tuple[str, str], _Side] = {}
    suites: set[SegmentKey] = set()
    for text in texts:
        for document, element, is_suite in _side_elements(text):
            if is_suite:
                suites.update((document, segment.get("id", "")) for segment in element.iter("seg"))
                continue
            lang = element.get("lang", "")
            translator = "" if element.tag == "src" else element.get("translator", "")
            for segment in element.iter("seg"):
                side = sides.setdefault((lang, translator), _Side(lang, translator))
                number = segment.get("id", "")
                content = " ".join("".join(segment.itertext()).split())
                # The source is repeated in the files of other translators.
                earlier = side.segments.setdefault((document, number), content)
                if not number or content != earlier:
                    raise UserError(
                        f"{text} has a segment {number[:80]!r} of document {document[:80]} in "
                        f"{lang} without an id, or with two texts; list each document once"
                    )
    return list(sides.values()), len(suites)


def _side_elements(text: TextFile) -> Iterator[tuple[str, Element, bool]]:
    """Yield the <src> and <ref> of documents, after their ids and before whether it is a suite.

    Outputs of systems are passed over.
    """
    for document in elements(_xml_blocks(text), str(text), "doc"):
        for tag in ("src", "ref"):
            for element in document.iter(tag):
                yield document.get("id", ""), element, "testsuite" in document.attrib


# XML as a stream of elements


class _RefusedError(Exception):
    """The reason why the file is refused at the current line."""


def elements(
    blocks: Iterator[bytes], where: str, tag: str, root: str | None = None
) -> Iterator[Element]:
    """Yield the elements of one name with their children, as soon as they end.

    Args:
        where: The name of the file in messages.
        tag: The name of the elements. Those within another one are part of it.
        root: The required name of the outermost element, if any.

    Raises:
        UserError: The file is not well-formed, has another root, or exceeds a limit.
    """
    parser = expat.ParserCreate()
    builder = _Builder(tag, root)
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.SkippedEntityHandler = builder.entity
    # Text between two tags comes in one piece, with fewer calls.
    parser.buffer_text = True
    n_bytes = 0  # since the last element
    try:
        for block in blocks:
            parser.Parse(block)
            # The limit bounds memory: an element that does not end would collect the whole file.
            n_bytes = 0 if builder.finished else n_bytes + len(block)
            if n_bytes > MAX_BYTES:
                raise _RefusedError(f"a <{tag}> is not closed within {MAX_BYTES:,} bytes")
            yield from builder.finished
            builder.finished.clear()
        parser.Parse(b"", True)
        yield from builder.finished
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(
            f"{where}, line {error.lineno:,}: {reason}; it is damaged, not XML, or in another "
            "encoding"
        ) from None
    except (LookupError, ValueError) as error:  # the file declares an unknown encoding
        raise UserError(f"{where}: {error}; convert the file to UTF-8") from None
    except _RefusedError as error:
        raise UserError(f"{where}, line {parser.CurrentLineNumber:,}: {error}") from None


class _Builder:
    """Handles the events of a parser: builds the elements of one name, and drops other content.

    Attributes:
        finished: The elements that have ended.
    """

    def __init__(self, tag: str, root: str | None) -> None:
        self.finished: list[Element] = []
        self._tag = tag
        self._root = root
        self._prefix = ""  # of the namespace of the root, and of its elements
        self._tree: TreeBuilder | None = None  # of the element that is open, if any
        self._depth = 0  # number of open tags
        self._element_depth = 0  # number of tags around the element that is open

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle a start tag."""
        if self._depth == 0:
            prefix, colon, _ = tag.rpartition(":")
            self._prefix = prefix + colon
        tag = tag.removeprefix(self._prefix)
        if self._depth == 0 and self._root not in (None, tag):
            raise _RefusedError(f"the file starts with <{tag[:80]}>, not <{self._root}>")
        if self._depth >= MAX_DEPTH:
            raise _RefusedError(f"more than {MAX_DEPTH} nested tags")
        # Of nested elements with the name, the outer one is built.
        if self._tree is None and tag == self._tag:
            self._tree = TreeBuilder()
            self._element_depth = self._depth
        self._depth += 1
        if self._tree:
            self._tree.start(tag, attributes)

    def end(self, tag: str) -> None:
        """Handle an end tag."""
        self._depth -= 1
        if self._tree is None:
            return
        self._tree.end(tag.removeprefix(self._prefix))
        if self._depth == self._element_depth:
            self.finished.append(self._tree.close())
            self._tree = None

    def text(self, characters: str) -> None:
        """Handle text between tags."""
        if self._tree:
            self._tree.data(characters)

    def doctype(self, *declaration: str | int | None) -> None:
        """Refuse declarations: an entity can expand to gigabytes, or include another file."""
        # The last argument of expat's handler.
        has_internal_subset = declaration[-1]
        if has_internal_subset:
            raise _RefusedError(
                "declarations in the document type are not supported; remove what is between [ "
                "and ]"
            )

    def entity(self, name: str, *_: object) -> None:
        """Refuse an entity that only an external document type could define."""
        raise _RefusedError(
            f"the entity {name[:80]} is not defined in the file; replace it by text"
        )
