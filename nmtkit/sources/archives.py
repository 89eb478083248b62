"""The bytes of a text as it is stored: plain, compressed, or as a member of a tar or zip archive.

Everything is a stream: nothing is written to disk, and each step that a hostile file could blow up
is bounded.
"""

import bz2
import hashlib
import lzma
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path, PurePosixPath
from typing import Protocol

import zstandard

Blocks = Iterator[bytes]  # of any size, empty ones too

BLOCK_BYTES = 2**18
PIECE_BYTES = 2**10  # fed at once: zstd may expand it to 32 MiB, deflate to 1 MiB
MAX_WINDOW_BYTES = 2**27  # history of a decompressor: xz -9 needs 65 MiB, zstd --long 128 MiB

# Text compresses 3 to 10 times, a sentence that is repeated over and over 300 times.
MAX_RATIO = 200
ALLOWANCE_BYTES = 2**24  # on top, so that a small file may be as repetitive as it likes

MAX_HEADER_BYTES = 2**16  # of a tar member's name and attributes; a path has at most 4 KiB
MAX_DIRECTORY_BYTES = 2**20  # of a zip archive: about 10,000 members
N_NAMES_SHOWN = 10
MAX_NAME_SHOWN = 200  # characters; a hostile name can be 64 KiB long

ARCHIVE_SUFFIXES = {".tar", ".tgz", ".tbz2", ".txz", ".tzst", ".zip"}


class PackedError(Exception):
    """Why a text cannot be read: the rest of a sentence that starts with its name."""


def read_blocks(path: Path, member: str | None = None, sha256: str | None = None) -> Blocks:
    """Yield the bytes of a file, or of one regular file in an archive, BLOCK_BYTES at a time.

    The suffix of the text's own name selects the decompression: .gz, .bz2, .xz, .zst. The format
    of an archive is recognized by its first bytes. An archive that is compressed as a whole is
    read to its end, where its checksum is.

    Args:
        sha256: of the stored bytes of a file that is not an archive; they are compared with it
            while they are read, so that what was hashed is what is read.

    Raises:
        PackedError: the file is damaged, cut short, unsafe or changed, or lacks the member.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stored:
        if member is None:
            if text_suffix(path.name) in ARCHIVE_SUFFIXES:
                raise PackedError("is an archive; unpack it and name the text that it holds")
            blocks = _blocks(stored) if sha256 is None else _verified(_blocks(stored), sha256)
            yield from _even(_unpack(blocks, path.suffix))
            return
        if PurePosixPath(member).is_absolute() or ".." in PurePosixPath(member).parts:
            raise PackedError("has a name that leads out of the archive, so it is not read")
        kind = _kind(stored)
        if kind == ".zip":
            blocks = _zip_member(stored, member)
        else:
            blocks = _tar_member(_unpack(_blocks(stored), kind), member)
        yield from _even(_unpack(blocks, Path(member).suffix))


def list_zip(path: Path) -> list[str]:
    """Return the names of the files in a zip archive, in its order.

    Raises:
        PackedError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        with (
            path.open("rb") as stored,
            SmallReads(FileIO(stored.fileno(), closefd=False)) as small_reads,
            zipfile.ZipFile(small_reads) as archive,
        ):
            entries = archive.infolist()
    except zipfile.BadZipFile as error:
        raise PackedError(f"cannot be read as a zip archive ({error})") from None
    return [entry.filename.removeprefix("./") for entry in entries if not entry.is_dir()]


def text_suffix(name: str) -> str:
    """Return the suffix without that of the compression: ".sgm" of "a.sgm.gz" and of "a.SGM"."""
    path = Path(name)
    return Path(path.stem if is_compressed(name) else name).suffix.lower()


def is_compressed(name: str) -> bool:
    """Return whether a file of this name is decompressed when it is read."""
    return Path(name).suffix.lower() in _DECOMPRESSORS


def _blocks(stored: BufferedReader) -> Blocks:
    while block := stored.read(BLOCK_BYTES):
        yield block


def _verified(blocks: Blocks, sha256: str) -> Blocks:
    """Yield `blocks`, and raise at the end unless they have that hash."""
    seen = hashlib.sha256()
    for block in blocks:
        seen.update(block)
        yield block
    if seen.hexdigest() != sha256:
        raise PackedError("was changed while it was in use; run the same command again")


def _even(blocks: Blocks) -> Blocks:
    """Yield the same bytes in blocks of BLOCK_BYTES; the last one may be shorter.

    A hostile file can unpack to one block of 32 MiB, or to millions of a few bytes. Readers that
    hold the lines of a block, or reparse an unfinished one, would need too much memory or time.
    """
    waiting = bytearray()
    for block in blocks:
        waiting += block
        while len(waiting) >= BLOCK_BYTES:
            yield bytes(waiting[:BLOCK_BYTES])
            del waiting[:BLOCK_BYTES]
    if waiting:
        yield bytes(waiting)


def _kind(stored: BufferedReader) -> str:
    """Return the suffix that the first bytes of an archive indicate; "" is a plain tar."""
    start = stored.peek(10)
    return next((suffix for suffix, begin in _SIGNATURES.items() if begin.match(start)), "")


_SIGNATURES = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".bz2": re.compile(rb"BZh[1-9]1AY&SY"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
    ".zst": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    ".zip": re.compile(rb"PK(?:\x03\x04|\x05\x06)"),
}


# Compression


class _Decompressor(Protocol):
    """The interface of bz2 and lzma: one stream, whose output is requested in portions."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Greedy:
    """A decompressor of zlib or zstandard, which returns all its output at once."""

    needs_input = True

    def __init__(self, inner: "zlib._Decompress | zstandard.ZstdDecompressionObj") -> None:
        self._inner = inner

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:  # noqa: ARG002 - see PIECE_BYTES
        return self._inner.decompress(data)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    ".gz": lambda: _Greedy(zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_WINDOW_BYTES),
    ".zst": lambda: _Greedy(
        zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
    ),
}
_DECOMPRESSION_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def _unpack(packed: Blocks, suffix: str) -> Blocks:
    """Decompress one stream, or several end to end as `cat` joins them.

    The file objects of gzip, bz2, lzma and zstandard are not used: one or another of them takes a
    truncated stream, or a damaged second stream, for the end of the text, or has no memory limit.
    """
    if suffix.lower() not in _DECOMPRESSORS:
        yield from packed
        return
    n_in, n_out, n_streams = 0, 0, 0
    decompressor: _Decompressor | None = None  # None between streams
    for piece in _pieces(packed):
        n_in += len(piece)
        fed = piece
        while fed or (decompressor and not decompressor.needs_input):
            if decompressor is None:
                if not (fed := fed.lstrip(b"\0")):  # padding
                    break
                decompressor = _DECOMPRESSORS[suffix.lower()]()
                n_streams += 1
            try:
                unpacked = decompressor.decompress(fed, BLOCK_BYTES)
            except _DECOMPRESSION_ERRORS as error:
                raise PackedError(f"is damaged, or is not a {suffix} file ({error})") from None
            n_out += len(unpacked)
            _check_ratio(n_in, n_out)
            yield unpacked
            fed = b""
            if decompressor.eof:
                fed, decompressor = decompressor.unused_data, None
    if decompressor is not None or n_streams == 0:
        raise PackedError("is cut short")


def _pieces(blocks: Blocks) -> Blocks:
    for block in blocks:
        for start in range(0, len(block), PIECE_BYTES):
            yield block[start : start + PIECE_BYTES]


def _check_ratio(n_in: int, n_out: int) -> None:
    if n_out > MAX_RATIO * n_in + ALLOWANCE_BYTES:
        raise PackedError(
            f"decompresses from {n_in:,} to {n_out:,} bytes, more than {MAX_RATIO} times as many; "
            "that is not text, so reading stops"
        )


# Tar


@dataclass(frozen=True)
class _TarMember:
    name: str
    is_regular: bool
    n_bytes: int


def _tar_member(archive: Blocks, member: str) -> Blocks:
    """Yield the bytes of the first member of that name, then read the archive to its end."""
    tape = _Tape(archive)
    names: list[str] = []
    for entry in _tar_members(tape):
        if entry.name == member:
            if not entry.is_regular:
                raise PackedError("is not a regular file, so it is not read")
            yield from tape.take(entry.n_bytes)
            for _ in archive:
                pass
            return
        if entry.is_regular and len(names) <= N_NAMES_SHOWN:
            names.append(entry.name)
    raise _missing(names)


def _missing(names: list[str]) -> PackedError:
    shown = ", ".join(name[:MAX_NAME_SHOWN] for name in names[:N_NAMES_SHOWN])
    shown += ", ..." if len(names) > N_NAMES_SHOWN else ""
    return PackedError(f"does not exist; the archive has {shown or 'no file'}")


class _Tape:
    """A sequential reader of blocks, from which any number of bytes can be taken."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def take(self, n_bytes: int) -> Blocks:
        """Yield the next `n_bytes` bytes."""
        while n_bytes > 0:
            while not self._rest:
                block = next(self._blocks, None)
                if block is None:
                    raise PackedError("is cut short")
                self._rest = memoryview(block)
            taken, self._rest = self._rest[:n_bytes], self._rest[n_bytes:]
            n_bytes -= len(taken)
            yield bytes(taken)

    def skip(self, n_bytes: int) -> None:
        """Skip the next `n_bytes` bytes."""
        for _ in self.take(n_bytes):
            pass


def _padded(n_bytes: int) -> int:
    """Round up to a whole number of tar's blocks."""
    return n_bytes + -n_bytes % tarfile.BLOCKSIZE


def _tar_members(tape: _Tape) -> Iterator[_TarMember]:
    """Yield each member with the tape at its data, which the next step skips.

    `tarfile` parses only the headers of 512 bytes here, since it reads a whole archive without
    bounds: one pax header of 256 MiB takes 769 MiB of memory, and 400 long names before a member
    end in a RecursionError. With its reads limited to 64 KiB, 400 global headers in 26 MB still
    take 271 MiB and 68 s (here 0.02 s), and malformed attributes are ignored.
    """
    attributes: dict[str, str] = {}  # from the headers before the member's own
    while True:
        header = b"".join(tape.take(tarfile.BLOCKSIZE))
        if not any(header):
            return
        try:
            entry = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            if entry.type in _ATTRIBUTES:
                attributes |= _attributes(tape, entry.type, entry.size)
                continue
            n_bytes = int(attributes.get("size", entry.size))
        except (tarfile.HeaderError, ValueError) as error:
            raise PackedError(
                f"cannot be found: the archive is damaged, or is not a tar ({error})"
            ) from None
        if n_bytes < 0:
            raise PackedError(f"cannot be found: the archive is damaged (a size of {n_bytes:,})")
        name = attributes.get("path", entry.name)
        if entry.type == tarfile.GNUTYPE_SPARSE or attributes.keys() & _SPARSE:
            raise PackedError(
                f"cannot be found: the archive has a sparse file, {name[:MAX_NAME_SHOWN]}"
            )
        yield _TarMember(
            name=name.removeprefix("./"),
            is_regular=entry.isreg(),
            n_bytes=n_bytes,
        )
        attributes = {}
        if entry.isreg() or entry.type not in tarfile.SUPPORTED_TYPES:  # then data follows
            tape.skip(_padded(n_bytes))


_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_IGNORED = (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK)  # comments; the target of a link
_SPARSE = {"GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.size"}
_RECORD_LENGTH = re.compile(rb"([1-9][0-9]{0,5}) ")
_ATTRIBUTES = (*_PAX, *_IGNORED, tarfile.GNUTYPE_LONGNAME)


def _attributes(tape: _Tape, kind: bytes, n_bytes: int) -> dict[str, str]:
    """Return the attributes that a header gives to the next member."""
    if not 0 <= n_bytes <= MAX_HEADER_BYTES:
        raise PackedError(
            f"cannot be found: the archive has a name of {n_bytes:,} bytes; the limit is "
            f"{MAX_HEADER_BYTES:,}"
        )
    data = b"".join(tape.take(_padded(n_bytes)))[:n_bytes]
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    records = _pax_records(data) if kind in _PAX else ()
    return {key: value for key, value in records if key in ("path", "size", *_SPARSE)}


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records "length key=value\n" of a pax header (POSIX.1-2001)."""
    start = 0
    while start < len(data):
        length = _RECORD_LENGTH.match(data, start)
        end = start + int(length[1]) if length else 0
        if length is None or not length.end() < end <= len(data):
            raise PackedError("cannot be found: the archive is damaged (malformed attributes)")
        record = data[length.end() : end - 1].decode("utf-8", "surrogateescape")
        key, _, value = record.partition("=")
        yield key, value
        start = end


# Zip


class SmallReads(BufferedReader):
    """A file that refuses large reads: zipfile reads the directory of an archive in one."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def _zip_member(stored: BufferedReader, member: str) -> Blocks:
    """Yield the bytes of a member; zipfile compares its checksum at the end."""
    n_archive = os.fstat(stored.fileno()).st_size
    try:
        with (
            SmallReads(FileIO(stored.fileno(), closefd=False)) as small_reads,
            zipfile.ZipFile(small_reads) as archive,
        ):
            info = _zip_info(archive, member)
            n_in, n_out = min(info.compress_size, n_archive), 0
            with archive.open(info) as stream:
                while block := stream.read(BLOCK_BYTES):
                    n_out += len(block)
                    _check_ratio(n_in, n_out)
                    yield block
    except ZIP_ERRORS as error:
        reason = str(error) or "cut short"
        raise PackedError(f"cannot be read from its zip archive ({reason})") from None


# What zipfile raises for altered bytes, or for what it does not support, such as encryption.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    OSError,
    RuntimeError,
    ValueError,
)


def _zip_info(archive: zipfile.ZipFile, member: str) -> zipfile.ZipInfo:
    entries = archive.infolist()
    info = next((entry for entry in entries if entry.filename.removeprefix("./") == member), None)
    if info is None:
        raise _missing([entry.filename for entry in entries if not entry.is_dir()])
    kind = stat.S_IFMT(info.external_attr >> 16)  # 0 if it was not packed on Unix
    if info.is_dir() or kind not in (0, stat.S_IFREG):
        raise PackedError("is not a regular file, so it is not read")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile does not limit the output of bz2 and LZMA.
        raise PackedError("is compressed, but not by deflate; repack the archive")
    return info
