"""XML as a stream of elements in bounded memory, without entities that the file itself declares."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmtkit.utils.errors import UserError

MAX_BYTES = 2**24  # of an element with its children, and of the content between two elements
MAX_DEPTH = 100  # of nested tags


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
    parser.StartDoctypeDeclHandler = _refuse_declarations
    parser.SkippedEntityHandler = _refuse_entity
    # Text comes in one piece between two tags, which needs fewer calls.
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
    """Builds the elements of one name, and drops the content between them.

    Attributes:
        finished: The elements that have ended.
    """

    def __init__(self, tag: str, root: str | None) -> None:
        self.finished: list[Element] = []
        self._tag = tag
        self._root = root
        self._prefix = ""  # of the namespace of the root, which its elements have
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


def _refuse_declarations(*doctype: str | int | None) -> None:
    """Refuse declarations: an entity can expand to gigabytes, or include another file."""
    # The last argument of expat's handler.
    has_internal_subset = doctype[-1]
    if has_internal_subset:
        raise _RefusedError(
            "declarations in the document type are not supported; remove what is between [ and ]"
        )


def _refuse_entity(name: str, *_: object) -> None:
    """Refuse an entity that only an external document type could define."""
    raise _RefusedError(f"the entity {name[:80]} is not defined in the file; replace it by text")
