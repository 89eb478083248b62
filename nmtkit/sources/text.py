"""One text: a file or a member of an archive, and its lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nmtkit.sources.archives import PackedError, read_blocks, text_suffix
from nmtkit.sources.sgml import Segment, read_segments
from nmtkit.sources.utf8 import read_parts
from nmtkit.utils.errors import UserError


@dataclass(frozen=True)
class TextFile:
    """A text: a file, or one member of a tar or zip archive.

    The suffixes of its name determine its format: ".gz", ".bz2", ".xz" and ".zst" are decompressed,
    and ".sgm" and ".sgml" before them hold segments, unless the text `is_plain`.

    Attributes:
        path: The file.
        member: The name of the member, if the file is an archive.
        sha256: The expected hash of a file that is not an archive, if it is known.
        is_plain: Read lines of text, whatever its name and contents look like.
        keep_bom: Keep a byte order mark at the start, which is otherwise removed. The scripts of
            Moses read it as a character.
    """

    path: Path
    member: str | None = None
    sha256: str | None = None
    is_plain: bool = False
    keep_bom: bool = False

    @property
    def name(self) -> str:
        """The name of the text itself, whose suffixes count."""
        return self.member or self.path.name

    @property
    def is_sgml(self) -> bool:
        """Whether it consists of segments of SGML."""
        return not self.is_plain and text_suffix(self.name) in (".sgm", ".sgml")

    def __str__(self) -> str:
        """Return the text as messages name it."""
        return f"{self.member} in {self.path}" if self.member else str(self.path)

    def blocks(self) -> Iterator[bytes]:
        """Yield its decompressed bytes.

        Raises:
            UserError: It cannot be read, is damaged, or is not the text of `sha256`.
        """
        try:
            # All errors of files and archives become one sentence about this text here.
            yield from read_blocks(self.path, self.member, self.sha256)
        except OSError as error:
            raise UserError(f"cannot read {self}: {error.strerror or error}") from None
        except PackedError as error:
            raise UserError(f"{self} {error}") from None


def read_lines(file: TextFile, blocks: Iterable[bytes] | None = None) -> Iterator[str]:
    """Yield the lines of a text without line ends, in bounded memory.

    Args:
        file: The text.
        blocks: Its bytes, if the caller has opened it; a pipe can be read only once.
    """
    # Lines are decoded a block at a time, which is much faster than one by one.
    parts = read_parts(file.blocks() if blocks is None else blocks, file, file.keep_bom)
    lines = chain.from_iterable(parts)
    if file.is_sgml:
        for segment in read_segments(lines, str(file)):
            yield segment.text
    else:
        yield from lines


def file_segments(file: TextFile) -> list[Segment]:
    """Return the segments of an SGML file."""
    return list(read_segments(chain.from_iterable(read_parts(file.blocks(), file)), str(file)))
