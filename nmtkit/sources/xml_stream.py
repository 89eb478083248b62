"""XML as a stream of elements, without its dangers: entities of its own, and what has no end."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from nmtkit.utils.errors import UserError

MAX_BYTES = 2**24  # of an element with all that is in it, and of what is between two
MAX_DEPTH = 100  # of nested tags


class _RefusedError(Exception):
    """Why the file is refused at the current line."""


def elements(
    blocks: Iterator[bytes], where: str, tag: str, root: str | None = None
) -> Iterator[Element]:
    """Yield each outer element of the name `tag`, with all that is in it, as soon as it ends."""
    parser = expat.ParserCreate()
    builder = _Builder(tag, root)
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.text
    parser.StartDoctypeDeclHandler = _refuse_declarations
    parser.SkippedEntityHandler = _refuse_entity
    parser.buffer_text = True
    n_bytes = 0  # since the last element
    try:
        for block in blocks:
            parser.Parse(block)
            n_bytes = 0 if builder.finished else n_bytes + len(block)
            if n_bytes > MAX_BYTES:
                raise _RefusedError(f"no end of a <{tag}> within {MAX_BYTES:,} bytes")
            yield from builder.finished
            builder.finished.clear()
        parser.Parse(b"", True)
        yield from builder.finished
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise UserError(
            f"{where}, line {error.lineno:,}: {reason}; it is damaged, no XML, or otherwise encoded"
        ) from None
    except (LookupError, ValueError) as error:  # an encoding that neither expat nor Python has
        raise UserError(f"{where}: {error}; convert the file to UTF-8") from None
    except _RefusedError as error:
        raise UserError(f"{where}, line {parser.CurrentLineNumber:,}: {error}") from None


class _Builder:
    """Builds the elements of one name, and forgets what is outside of them."""

    def __init__(self, tag: str, root: str | None) -> None:
        self.finished: list[Element] = []
        self._tag, self._root = tag, root
        self._tree: TreeBuilder | None = None  # of an element that is open
        self._depth = self._outer_depth = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and self._root not in (None, tag):
            raise _RefusedError(f"the file starts with <{tag[:80]}>, not <{self._root}>")
        if self._depth >= MAX_DEPTH:
            raise _RefusedError(f"more than {MAX_DEPTH} nested tags")
        if self._tree is None and tag == self._tag:
            self._tree, self._outer_depth = TreeBuilder(), self._depth
        self._depth += 1
        if self._tree:
            self._tree.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._tree:
            self._tree.end(tag)
            if self._depth == self._outer_depth:
                self.finished.append(self._tree.close())
                self._tree = None

    def text(self, characters: str) -> None:
        if self._tree:
            self._tree.data(characters)


def _refuse_declarations(*doctype: str | int | None) -> None:
    """Refuse declarations: an entity can expand to gigabytes, or include another file."""
    if doctype[-1]:
        raise _RefusedError(
            "declarations in the document type are not supported; remove what is between [ and ]"
        )


def _refuse_entity(name: str, *_: object) -> None:
    raise _RefusedError(f"the entity {name[:80]} is not defined in the file; replace it by text")
