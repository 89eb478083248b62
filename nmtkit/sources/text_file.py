"""One text as it is stored: plain, compressed, or a member of a tar or zip archive; and its lines.

Everything is a stream, and nothing is written to disk. A user's own file may come from anywhere:
reading stops if a small file becomes a huge text.
"""

import bz2
import hashlib
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, RawIOBase
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import zstandard

from nmtkit.sources.sgml import Segment, read_segments
from nmtkit.sources.utf8 import read_parts
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

Blocks = Iterator[bytes]

BLOCK_BYTES = 2**18
# Compressed bytes per call of a decompressor: zstd may expand them to 32 MiB, deflate to 1 MiB.
PIECE_BYTES = 2**10
MAX_WINDOW_BYTES = 2**27  # history of a decompressor: xz -9 needs 65 MiB, zstd --long 128 MiB
# Text compresses 3 to 10 times. Only one sentence that is repeated compresses more than this.
MAX_RATIO = 200
ALLOWANCE_BYTES = 2**24  # on top: small files are never refused

TAR_SUFFIXES = {".tar", ".tgz", ".tbz2", ".txz", ".tzst"}


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
        keep_bom: Keep a byte order mark at the start instead of removing it. The scripts of
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
        blocks: Its bytes, if the caller has opened it; a pipe can be read only once.
    """
    # Decoding a block of lines at a time is much faster than one by one.
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


# The bytes of a file, or of a member of an archive


class PackedError(Exception):
    """The reason why a text cannot be read: the predicate of a sentence about it."""


def read_blocks(path: Path, member: str | None = None, sha256: str | None = None) -> Blocks:
    """Yield the decompressed bytes of a file, or of one regular file in an archive.

    Args:
        path: The file. An archive is a tar if its name ends like .tar.gz or .tgz, otherwise a zip.
        member: The name of the member, if it is an archive.
        sha256: The expected hash of the stored bytes, if it is not an archive.

    Yields:
        Blocks of BLOCK_BYTES; the last one may be shorter.

    Raises:
        PackedError: The file is damaged, has no such member, or expands too much.
    """
    with path.open("rb") as stored:
        if member is None:
            if text_suffix(path.name) in (TAR_SUFFIXES | {".zip"}):
                raise PackedError("is an archive; unpack it and pass the text in it")
            blocks = _blocks(stored) if sha256 is None else _verified(_blocks(stored), sha256)
        elif text_suffix(path.name) in TAR_SUFFIXES:
            blocks = _tar_member(_unpacked(_blocks(stored), _compression(path.name)), member)
        else:
            blocks = _zip_member(stored, member)
        # A member of an archive may be compressed itself, as in corpus.tar with train.en.gz.
        yield from _blocks(_file(_unpacked(blocks, Path(member or path.name).suffix)))


def list_zip(path: Path) -> list[str]:
    """Return the names of the files in a zip archive, without those that file managers add.

    These are hidden (.DS_Store), or in the folder __MACOSX.

    Raises:
        UserError: It is not a zip archive, or is damaged.
    """
    try:
        with path.open("rb") as stored, _zip(stored) as archive:
            names = []
            for name in _names(archive):
                parts = name.split("/")
                is_hidden = any(part.startswith(".") and part not in (".", "..") for part in parts)
                if not is_hidden and "__MACOSX" not in parts:
                    names.append(name)
            return names
    except PackedError as error:
        raise UserError(f"{path} {error}") from None


def is_whole_archive(path: Path, name: str) -> bool:
    """Return whether a file is a complete archive, all of whose checksums are right.

    Args:
        path: The file.
        name: The name of the archive: a compressed tar if it ends like .tgz, otherwise a zip.
    """
    try:
        with path.open("rb") as stored:
            if text_suffix(name) in TAR_SUFFIXES:
                for _ in _unpacked(_blocks(stored), _compression(name)):
                    pass
                return True
            with _zip(stored) as archive:
                _check_limits(stored, archive.infolist())
                return archive.testzip() is None
    except PackedError:
        return False


def text_suffix(name: str) -> str:
    """Return the suffix without that of the compression: ".sgm" of "a.sgm.gz" and of "a.SGM"."""
    path = Path(name)
    return Path(path.stem if is_compressed(name) else name).suffix.lower()


def is_compressed(name: str) -> bool:
    """Return whether a file of this name is decompressed when it is read."""
    return Path(name).suffix.lower() in _DECOMPRESSORS


def _compression(name: str) -> str:
    """Return the suffix of the compression of a tar archive: ".gz" for .tar.gz and .tgz."""
    return Path(name).suffix.lower().replace(".t", ".")


class _Stream(RawIOBase):
    """Blocks of any size as a file. Any number of its bytes can be read at a time."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")  # of the block that is being read

    def readable(self) -> bool:
        """Return True, as `BufferedReader` requires."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read up to the size of a buffer; 0 bytes at the end."""
        # An empty block must not be returned: 0 bytes mean the end.
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        n_bytes = min(len(buffer), len(self._rest))
        buffer[:n_bytes] = self._rest[:n_bytes]
        self._rest = self._rest[n_bytes:]
        return n_bytes


def _file(blocks: Blocks) -> BufferedReader:
    """Return blocks as a file."""
    return BufferedReader(_Stream(blocks), BLOCK_BYTES)


def _blocks(file: IO[bytes]) -> Blocks:
    """Return a file as blocks."""
    return iter(partial(file.read, BLOCK_BYTES), b"")


def _verified(blocks: Blocks, sha256: str) -> Blocks:
    """Yield blocks, and compare their hash at the end.

    Args:
        blocks: The bytes of a file.
        sha256: Their expected hash.

    Raises:
        PackedError: They have another hash.
    """
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
        yield block
    if digest.hexdigest() != sha256:
        raise PackedError("was changed while it was in use; rerun the same command")


_Bounded = bz2.BZ2Decompressor | lzma.LZMADecompressor  # others return all their output at once
_Decompressor: TypeAlias = "_Bounded | zlib._Decompress | zstandard.ZstdDecompressionObj"
_DECOMPRESSORS: dict[str, Callable[[], "_Decompressor"]] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW_BYTES),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj(),
}
_DECOMPRESSION_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def _unpacked(packed: Blocks, suffix: str) -> Blocks:
    """Decompress one stream, or several end to end as `cat` joins them.

    Args:
        packed: The compressed bytes.
        suffix: The suffix of the file; it determines the compression, if there is any.

    Raises:
        PackedError: The bytes are damaged or cut short, or expand too much.
    """
    # The file objects of bz2, lzma and zstandard are not used: they take a damaged or truncated
    # second stream for the end of the text.
    if suffix.lower() not in _DECOMPRESSORS:
        yield from packed
        return
    new_decompressor = _DECOMPRESSORS[suffix.lower()]
    decompressor: _Decompressor | None = new_decompressor()  # None between streams
    n_in = 0
    n_out = 0
    for piece in iter(partial(_file(packed).read, PIECE_BYTES), b""):
        n_in += len(piece)
        fed = piece
        # bz2 and xz hold back output beyond the limit, so they are called until they need input.
        while fed or (isinstance(decompressor, _Bounded) and not decompressor.needs_input):
            if decompressor is None:
                fed = fed.lstrip(b"\0")  # streams may be padded
                if not fed:
                    break
                decompressor = new_decompressor()
            try:
                if isinstance(decompressor, _Bounded):
                    unpacked = decompressor.decompress(fed, BLOCK_BYTES)
                else:
                    unpacked = decompressor.decompress(fed)
            except _DECOMPRESSION_ERRORS as error:
                raise PackedError(f"is damaged, or is not a {suffix} file ({error})") from None
            n_out += len(unpacked)
            _check_ratio(n_in, n_out)
            yield unpacked
            fed = b""
            if decompressor.eof:
                fed = decompressor.unused_data
                decompressor = None
    if decompressor is not None:
        raise PackedError("is cut short")


def _check_ratio(n_in: int, n_out: int) -> None:
    """Refuse a decompression bomb.

    Args:
        n_in: Number of compressed bytes.
        n_out: Number of decompressed bytes.
    """
    if n_out > MAX_RATIO * n_in + ALLOWANCE_BYTES:
        raise PackedError(
            f"decompresses from {n_in:,} to {n_out:,} bytes, more than {MAX_RATIO} times its "
            "size; refusing to read it"
        )


def _tar_member(unpacked: Blocks, member: str) -> Blocks:
    """Yield the bytes of the first member of a name.

    Args:
        unpacked: The decompressed tar archive.
    """
    try:
        with tarfile.open(fileobj=_file(unpacked), mode="r|") as archive:
            for entry in archive:
                if entry.name.removeprefix("./") == member:
                    if not entry.isreg() or (file := archive.extractfile(entry)) is None:
                        raise PackedError("is not a regular file; refusing to read it")
                    yield from _blocks(file)
                    # The checksum of the compression is at the end of the archive.
                    for _ in unpacked:
                        pass
                    return
            names = []
            for entry in archive.getmembers():
                if entry.isreg():
                    names.append(entry.name.removeprefix("./"))
    except (tarfile.TarError, ValueError) as error:
        raise PackedError(f"cannot be read from its tar archive ({error})") from None
    raise _missing(names)


def _zip_member(stored: BufferedReader, member: str) -> Blocks:
    """Yield the bytes of a member; zipfile compares its checksum at the end.

    Args:
        stored: The zip archive.
    """
    with _zip(stored) as archive:
        if member not in archive.NameToInfo:
            raise _missing(_names(archive))
        entry = archive.getinfo(member)
        _check_limits(stored, [entry])
        with archive.open(entry) as file:  # which returns no more than `file_size` bytes
            yield from _blocks(file)


def _check_limits(stored: BufferedReader, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Check the methods and declared sizes of entries of a zip archive before reading any.

    Args:
        stored: The zip archive.
        entries: The entries. zipfile returns no more bytes of an entry than it declares.
    """
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile does not limit the output of bz2 and LZMA.
            raise PackedError(
                "is compressed by an unsupported method; repack the archive with deflate"
            )
    n_compressed = sum(entry.compress_size for entry in entries)
    n_decompressed = sum(entry.file_size for entry in entries)
    # Entries can share their stored bytes: these do not count twice.
    n_stored = os.fstat(stored.fileno()).st_size
    _check_ratio(min(n_compressed, n_stored), n_decompressed)


# Of altered bytes, and of features that zipfile does not support, such as encryption.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    OSError,
    RuntimeError,
    ValueError,
)


@contextmanager
def _zip(stored: BufferedReader) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, and turn the errors of zipfile in the block into a PackedError."""
    try:
        with zipfile.ZipFile(stored) as archive:
            yield archive
    except _ZIP_ERRORS as error:
        reason = str(error) or "cut short"
        raise PackedError(f"cannot be read from its zip archive ({reason})") from None


def _names(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of all files, without those of folders."""
    return [entry.filename for entry in archive.infolist() if not entry.is_dir()]


def _missing(names: Iterable[str]) -> PackedError:
    """Return the error for a member that an archive lacks, with the names that it has."""
    available = shorten(", ".join(names), 200) or "no files"
    return PackedError(f"does not exist; the archive has {available}")
