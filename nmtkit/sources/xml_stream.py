"""XML as a stream, without its dangerous features: entities of its own, and what has no end."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar
from xml.parsers import expat

from nmtkit.errors import UserError

MAX_TAG_BYTES = 2**20  # or of a comment; expat rescans it from its start for each block
MAX_NAMES = 1_000  # of tags and attributes, all of which expat keeps; TMX has about 50
MAX_DEPTH = 100  # of nested tags
MAX_SEGMENT_CHARACTERS = 2**24  # as many as a line may have bytes

Item = TypeVar("Item")


class RefusedError(Exception):
    """Why the file is refused at the current line."""


class Handler(ABC, Generic[Item]):
    """What becomes of the tags and texts of one file: `finished` items, and words of a segment."""

    def __init__(self) -> None:
        self.finished: list[Item] = []
        self.depth = 0
        self._words: list[str] = []  # of this segment
        self._n_characters = 0

    @abstractmethod
    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle a start tag."""

    @abstractmethod
    def end(self, tag: str) -> None:
        """Handle an end tag."""

    @abstractmethod
    def text(self, characters: str) -> None:
        """Handle the text between two tags."""

    def begin_segment(self) -> None:
        """Forget the words so far."""
        self._words, self._n_characters = [], 0

    def segment(self) -> str:
        """Return the words so far, with single spaces between them."""
        return " ".join("".join(self._words).split())

    def add(self, characters: str) -> None:
        """Add to the words of the segment."""
        self._words.append(characters)
        self._n_characters += len(characters)
        if self._n_characters > MAX_SEGMENT_CHARACTERS:
            raise RefusedError(f"a segment longer than {MAX_SEGMENT_CHARACTERS:,} characters")


def parse(blocks: Iterator[bytes], where: str, handler: Handler[Item]) -> Iterator[Item]:
    """Yield what `handler` finishes, as soon as it is finished.

    Args:
        blocks: The bytes of the file.
        where: How messages name it.
        handler: What reads its tags and texts.

    Raises:
        UserError: It is not well-formed, `handler` refuses it, or its document type has
            declarations.
    """
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        if handler.depth >= MAX_DEPTH:
            raise RefusedError(f"more than {MAX_DEPTH} nested tags")
        handler.start(tag, attributes)
        handler.depth += 1

    def end(tag: str) -> None:
        handler.depth -= 1
        handler.end(tag)

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = handler.text
    parser.StartDoctypeDeclHandler = _refuse_declarations
    parser.SkippedEntityHandler = _refuse_entity
    parser.buffer_text = True
    n_bytes = 0
    try:
        for block in blocks:
            parser.Parse(block)
            n_bytes += len(block)
            if n_bytes - parser.CurrentByteIndex > MAX_TAG_BYTES:
                raise RefusedError(f"a tag or comment longer than {MAX_TAG_BYTES:,} bytes")
            if len(parser.intern) > MAX_NAMES:
                raise RefusedError(f"more than {MAX_NAMES:,} names of tags and attributes")
            yield from handler.finished
            handler.finished.clear()
        parser.Parse(b"", True)
        yield from handler.finished
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(
            f"{where}, line {error.lineno:,}: {reason}; the file is damaged, is not XML, or has "
            f"another encoding than it declares"
        ) from None
    except (LookupError, ValueError) as error:  # an encoding that neither expat nor Python has
        raise UserError(f"{where}: {error}; convert the file to UTF-8") from None
    except RefusedError as error:
        raise UserError(f"{where}, line {parser.CurrentLineNumber:,}: {error}") from None


def _refuse_declarations(
    _name: str, _system: str | None, _public: str | None, has_declarations: int
) -> None:
    """Refuse declarations: an entity can expand to gigabytes, or include another file."""
    if has_declarations:
        raise RefusedError(
            "declarations in the document type are not supported; remove what is between [ and ]"
        )


def _refuse_entity(name: str, *_: object) -> None:
    raise RefusedError(f"the entity {name[:80]} is not defined in the file; replace it by its text")
