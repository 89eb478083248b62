"""The bytes of a text as it is stored: plain, compressed, or as a member of a tar or zip archive.

Everything is a stream, and nothing is written to disk. Nobody has verified a user's own file, so
reading stops where a small one becomes a huge text.
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
from functools import partial
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any, TypeAlias

import zstandard

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

Blocks = Iterator[bytes]

BLOCK_BYTES = 2**18
PIECE_BYTES = 2**10  # fed at once: zstd may expand it to 32 MiB, deflate to 1 MiB
MAX_WINDOW_BYTES = 2**27  # history of a decompressor: xz -9 needs 65 MiB, zstd --long 128 MiB
# Text compresses 3 to 10 times; a sentence that is repeated over and over, more than this.
MAX_RATIO = 200
ALLOWANCE_BYTES = 2**24  # on top, so that a small file may be as repetitive as it likes

TAR_SUFFIXES = {".tar", ".tgz", ".tbz2", ".txz", ".tzst"}


class PackedError(Exception):
    """Why a text cannot be read: the predicate of a sentence about it."""


def read_blocks(path: Path, member: str | None = None, sha256: str | None = None) -> Blocks:
    """Yield the bytes of a file, or of one regular file in an archive, BLOCK_BYTES at a time.

    An archive is a tar if its name says so, as .tar.gz or .tgz do, and otherwise a zip. A tar is
    read to its end, where the checksum of its compression is. The stored bytes of a file that is
    not an archive are compared with `sha256` while they are read.
    """
    with path.open("rb") as stored:
        if member is None:
            if text_suffix(path.name) in {*TAR_SUFFIXES, ".zip"}:
                raise PackedError("is an archive; unpack it and name the text that it holds")
            blocks = _blocks(stored) if sha256 is None else _verified(_blocks(stored), sha256)
        elif text_suffix(path.name) in TAR_SUFFIXES:
            suffix = path.suffix.lower().replace(".t", ".")  # of .tgz, .gz
            blocks = _tar_member(_unpacked(_blocks(stored), suffix), member)
        else:
            blocks = _zip_member(stored, member)
        yield from _blocks(_file(_unpacked(blocks, Path(member or path.name).suffix)))


def list_zip(path: Path) -> list[str]:
    """Return the names of the files in a zip archive, without those that systems add to it.

    They are hidden (.DS_Store), or in the folder __MACOSX.
    """
    try:
        with path.open("rb") as stored, _zip(stored) as archive:
            return [name for name in _names(archive) if not _is_hidden(name)]
    except PackedError as error:
        raise UserError(f"{path} {error}") from None


def is_whole_zip(path: Path) -> bool:
    """Return whether a file is a zip archive whose members all have their checksums."""
    try:
        with path.open("rb") as stored, _zip(stored) as archive:
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


class _Stream(RawIOBase):
    """Blocks of any size as a file, from which any number of bytes can be read."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest and (block := next(self._blocks, None)) is not None:
            self._rest = memoryview(block)
        taken, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


def _file(blocks: Blocks) -> BufferedReader:
    return BufferedReader(_Stream(blocks), BLOCK_BYTES)


def _blocks(file: IO[bytes]) -> Blocks:
    return iter(partial(file.read, BLOCK_BYTES), b"")


def _verified(blocks: Blocks, sha256: str) -> Blocks:
    """Yield `blocks`, and raise at the end unless they have that hash."""
    seen = hashlib.sha256()
    for block in blocks:
        seen.update(block)
        yield block
    if seen.hexdigest() != sha256:
        raise PackedError("was changed while it was in use; run the same command again")


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
    """Decompress one stream, or several end to end as `cat` joins them."""
    # The file objects of bz2, lzma and zstandard take a damaged second stream, or a truncated one,
    # for the end of the text.
    if suffix.lower() not in _DECOMPRESSORS:
        yield from packed
        return
    make = _DECOMPRESSORS[suffix.lower()]
    decompressor: _Decompressor | None = make()  # None between streams
    n_in = n_out = 0
    for piece in iter(partial(_file(packed).read, PIECE_BYTES), b""):
        n_in += len(piece)
        fed = piece
        while fed or (isinstance(decompressor, _Bounded) and not decompressor.needs_input):
            if decompressor is None:
                if not (fed := fed.lstrip(b"\0")):  # padding
                    break
                decompressor = make()
            try:
                bound = (BLOCK_BYTES,) if isinstance(decompressor, _Bounded) else ()
                unpacked = decompressor.decompress(fed, *bound)
            except _DECOMPRESSION_ERRORS as error:
                raise PackedError(f"is damaged, or is not a {suffix} file ({error})") from None
            n_out += len(unpacked)
            _check_ratio(n_in, n_out)
            yield unpacked
            fed = b""
            if decompressor.eof:
                fed, decompressor = decompressor.unused_data, None
    if decompressor is not None:
        raise PackedError("is cut short")


def _check_ratio(n_in: int, n_out: int) -> None:
    if n_out > MAX_RATIO * n_in + ALLOWANCE_BYTES:
        raise PackedError(
            f"unpacks {n_in:,} to {n_out:,} bytes, more than {MAX_RATIO} times as many; not a text"
        )


def _tar_member(unpacked: Blocks, member: str) -> Blocks:
    """Yield the bytes of the first member of that name, then read the archive to its end."""
    try:
        with tarfile.open(fileobj=_file(unpacked), mode="r|") as archive:
            for entry in archive:
                if entry.name.removeprefix("./") == member:
                    if not entry.isreg() or (file := archive.extractfile(entry)) is None:
                        raise PackedError("is not a regular file, so it is not read")
                    yield from _blocks(file)
                    for _ in unpacked:
                        pass
                    return
            files = [entry.name for entry in archive.getmembers() if entry.isreg()]
    except (tarfile.TarError, ValueError) as error:
        raise PackedError(f"cannot be read from its tar archive ({error})") from None
    raise _missing(name.removeprefix("./") for name in files)


def _zip_member(stored: BufferedReader, member: str) -> Blocks:
    """Yield the bytes of a member; zipfile compares its checksum at the end."""
    with _zip(stored) as archive:
        if member not in archive.NameToInfo:
            raise _missing(_names(archive))
        entry = archive.getinfo(member)
        _check_limits(stored, [entry])
        with archive.open(entry) as file:  # which gives no more than `file_size`
            yield from _blocks(file)


def _check_limits(stored: BufferedReader, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Check the methods and declared sizes of the entries of a zip archive before reading any.

    zipfile gives no more bytes of an entry than it declares. Entries that share their stored bytes
    do not count them twice.
    """
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # zipfile does not limit the output of bz2 and LZMA.
            raise PackedError("is compressed, but not by deflate; repack the archive")
    n_compressed = sum(entry.compress_size for entry in entries)
    n_stored = os.fstat(stored.fileno()).st_size
    _check_ratio(min(n_compressed, n_stored), sum(entry.file_size for entry in entries))


@contextmanager
def _zip(stored: BufferedReader) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, and say in one way what is wrong with it or with a member."""
    try:
        with zipfile.ZipFile(stored) as archive:
            yield archive
    except (  # for altered bytes, or for what zipfile does not support, such as encryption
        *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
        *(IndexError, OSError, RuntimeError, ValueError),
    ) as error:
        reason = str(error) or "cut short"
        raise PackedError(f"cannot be read from its zip archive ({reason})") from None


def _names(archive: zipfile.ZipFile) -> list[str]:
    return [entry.filename for entry in archive.infolist() if not entry.is_dir()]


def _is_hidden(name: str) -> bool:
    for part in name.split("/"):
        if part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")):
            return True
    return False


def _missing(names: Iterable[str]) -> PackedError:
    has = shorten(", ".join(names), 200) or "no file"
    return PackedError(f"does not exist; the archive has {has}")
