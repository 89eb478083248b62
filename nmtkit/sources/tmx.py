"""Translation memories: TMX 1.4, read as a stream and without the dangerous features of XML."""

import re
from collections.abc import Iterator
from xml.parsers import expat

from nmtkit.errors import UserError
from nmtkit.sources.sgm import MAX_SEGMENT_CHARACTERS

MAX_TAG_BYTES = 2**20  # or of a comment; expat rescans it from its start for each block
MAX_NAMES = 1_000  # of tags and attributes, all of which expat keeps; TMX has about 50
MAX_DEPTH = 100  # of nested tags; a segment is inside four

# Inline elements. The content of codes, which belong to the format of the original document, is not
# text, but a sub-flow in them, such as a footnote or a title, is.
TEXT = {"seg", "hi", "sub"}
CODES = {"bpt", "ept", "it", "ph", "ut"}


def read_units(
    blocks: Iterator[bytes], where: str, src_lang: str, tgt_lang: str
) -> Iterator[tuple[str, str]]:
    """Yield (src, tgt) of every unit that has both languages, whitespace collapsed.

    Languages are compared by their primary subtags: "en-US" is "en". The first segment in a
    language counts.

    Args:
        where: how messages name the file.

    Raises:
        UserError: the file is not well-formed TMX, or its document type has declarations.
    """
    parser = expat.ParserCreate()
    units = _Units(primary_subtag(src_lang), primary_subtag(tgt_lang))
    parser.StartElementHandler = units.start
    parser.EndElementHandler = units.end
    parser.CharacterDataHandler = units.text
    parser.StartDoctypeDeclHandler = units.refuse_declarations
    parser.SkippedEntityHandler = units.refuse_entity
    parser.buffer_text = True
    n_bytes = 0
    try:
        for block in blocks:
            parser.Parse(block)
            n_bytes += len(block)
            if n_bytes - parser.CurrentByteIndex > MAX_TAG_BYTES:
                raise _RefusedError(f"a tag or comment longer than {MAX_TAG_BYTES:,} bytes")
            if len(parser.intern) > MAX_NAMES:
                raise _RefusedError(f"more than {MAX_NAMES:,} names of tags and attributes")
            yield from units.take()
        parser.Parse(b"", True)
        yield from units.take()
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(
            f"{where}, line {error.lineno:,}: {reason}; the file is damaged, is not XML, or has "
            f"another encoding than it declares"
        ) from None
    except (LookupError, ValueError) as error:  # an encoding that neither expat nor Python has
        raise UserError(f"{where}: {error}; convert the file to UTF-8") from None
    except _RefusedError as error:
        raise UserError(f"{where}, line {parser.CurrentLineNumber:,}: {error}") from None


def primary_subtag(lang: str) -> str:
    """Return the language alone: "en" of "en-US", "EN_gb" or "en"."""
    return re.split("[-_]", lang.lower(), maxsplit=1)[0]


class _RefusedError(Exception):
    """Why the file is refused at the current line."""


class _Units:
    """The parser's handlers, which collect the finished pairs and the current unit."""

    def __init__(self, src_lang: str, tgt_lang: str) -> None:
        self._src_lang, self._tgt_lang = src_lang, tgt_lang
        self._pairs: list[tuple[str, str]] = []
        self._segments: dict[str, str] = {}  # of this unit, by language
        self._lang = ""
        self._words: list[str] = []  # of this segment
        self._n_characters = 0
        self._is_text = [False]  # of each element that is open

    def take(self) -> list[tuple[str, str]]:
        """Return the pairs that were finished since the last call."""
        pairs, self._pairs = self._pairs, []
        return pairs

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle a start tag."""
        if len(self._is_text) == 1 and tag != "tmx":
            raise _RefusedError(f"not a translation memory: it starts with <{tag[:80]}>, not <tmx>")
        if len(self._is_text) > MAX_DEPTH:
            raise _RefusedError(f"more than {MAX_DEPTH} nested tags")
        self._is_text.append(tag in TEXT or (tag not in CODES and self._is_text[-1]))
        if tag == "tu":
            self._segments = {}
        elif tag == "tuv":  # TMX 1.1 has no "xml:"
            self._lang = primary_subtag(attributes.get("xml:lang") or attributes.get("lang", ""))
        elif tag == "seg":
            self._words, self._n_characters = [], 0
        elif tag == "sub":
            self._add(" ")

    def end(self, tag: str) -> None:
        """Handle an end tag."""
        self._is_text.pop()
        if tag == "tu":
            if {self._src_lang, self._tgt_lang} <= self._segments.keys():
                self._pairs.append((self._segments[self._src_lang], self._segments[self._tgt_lang]))
            self._segments = {}
        elif tag == "seg" and self._lang in (self._src_lang, self._tgt_lang):
            self._segments.setdefault(self._lang, " ".join("".join(self._words).split()))
        elif tag == "sub":
            self._add(" ")

    def text(self, characters: str) -> None:
        """Handle the text between two tags."""
        if self._is_text[-1]:
            self._add(characters)

    def _add(self, characters: str) -> None:
        self._words.append(characters)
        self._n_characters += len(characters)
        if self._n_characters > MAX_SEGMENT_CHARACTERS:
            raise _RefusedError(f"a segment longer than {MAX_SEGMENT_CHARACTERS:,} characters")

    def refuse_declarations(
        self, _name: str, _system: str | None, _public: str | None, has_declarations: int
    ) -> None:
        """Refuse declarations: an entity can expand to gigabytes, or include another file."""
        if has_declarations:
            raise _RefusedError(
                "declarations in the document type are not supported; remove what is between "
                "[ and ]"
            )

    def refuse_entity(self, name: str, *_: object) -> None:
        """Refuse an entity that this file does not define."""
        raise _RefusedError(
            f"the entity {name[:80]} is not defined in the file; replace it by its text"
        )
