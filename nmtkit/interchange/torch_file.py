"""Files of `torch.save`, read without unpickling: zip archives, and the format before torch 1.6."""

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader, BytesIO, FileIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from nmtkit.errors import UserError, shown
from nmtkit.interchange.pickles import Made, Named, Persistent, Pickle, PickleError, read_pickle

ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MAX_DIMENSIONS = 8
BLOCK_BYTES = 2**20  # read at a time
MAX_DIRECTORY_BYTES = 2**20  # of a zip archive: about 10,000 members
ZIP_ERRORS = (  # what zipfile raises for altered bytes, or for what it does not support
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(IndexError, OSError, RuntimeError, ValueError),
)

# Types of storages, and the bytes of an element.
DTYPES = {
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.DoubleStorage": torch.float64,
}
SIZES = {
    **{name: dtype.itemsize for name, dtype in DTYPES.items()},
    "torch.LongStorage": 8,
    "torch.IntStorage": 4,
    "torch.ShortStorage": 2,
    "torch.CharStorage": 1,
    "torch.ByteStorage": 1,
    "torch.BoolStorage": 1,
}
REBUILD = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
REBUILD_PARAMETER = "torch._utils._rebuild_parameter"
NAMES = frozenset({*SIZES, *REBUILD, REBUILD_PARAMETER})


@dataclass(frozen=True)
class TorchFile:
    """A file of `torch.save`: plain values, in which tensors are records that `tensor` reads."""

    path: Path
    value: Any
    _bytes_of: Callable[[str], bytes]  # of a storage

    @classmethod
    def open(cls, path: Path, may_name: Callable[[str], bool]) -> "TorchFile":
        """Open a file that may come from a stranger.

        Args:
            path: The file.
            may_name: Says of a module.name that is not torch's whether the pickle may name it.

        Raises:
            UserError: It is not a file of torch, is damaged, or holds more than plain data.
        """

        def is_known(name: str) -> bool:
            return name in NAMES or may_name(name)

        try:
            with path.open("rb") as file:
                is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
            return cls(path, *(_open_zip if is_zip else _open_legacy)(path, is_known))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
        except PickleError as error:
            raise UserError(f"{path} {error}; get it again from where it was published") from None

    def tensor(self, record: Any, name: str) -> Tensor:
        """Read a tensor of floating-point numbers, as float32.

        Args:
            record: What stands for it in `value`.
            name: What messages call it.

        Raises:
            UserError: It is not a tensor, or the file does not hold all its elements.
        """
        try:
            return self._tensor(record)
        except PickleError as error:
            raise UserError(f"{self.path}: {shown(name)} {error}") from None

    def _tensor(self, record: Any) -> Tensor:
        if type(record) is Made and record.by == REBUILD_PARAMETER and record.args:
            record = record.args[0]
        if type(record) is not Made or record.by not in REBUILD or len(record.args) < 4:
            raise PickleError("is not a tensor")
        storage, offset, size, stride = record.args[:4]
        kind, key, _ = _storage(storage)
        if kind not in DTYPES:
            raise PickleError(f"holds {kind}, and no floating-point numbers")
        if not _are_counts((offset,)) or not _are_counts(size) or not _are_counts(stride):
            raise PickleError("has no valid shape")
        if len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
            raise PickleError(f"has {len(size):,} dimensions and {len(stride):,} strides")
        content = self._bytes_of(key)
        n_stored = len(content) // SIZES[kind]
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if prod(size) > n_stored or last >= n_stored or max(size, default=1) > n_stored:
            raise PickleError(f"has shape {shown(size)}, and the file holds {n_stored:,} elements")
        if not prod(size):
            return torch.empty(size)
        stored = torch.frombuffer(bytearray(content), dtype=DTYPES[kind], count=n_stored)
        return stored.as_strided(size, stride, offset).float().contiguous()


def shape_of(record: Any) -> tuple[int, ...] | None:
    """Return the shape that a tensor is said to have, or None if it is not a tensor."""
    if type(record) is Made and record.by == REBUILD_PARAMETER and record.args:
        record = record.args[0]
    is_tensor = type(record) is Made and record.by in REBUILD and len(record.args) >= 4
    if not is_tensor or not _are_counts(record.args[2]) or len(record.args[2]) > MAX_DIMENSIONS:
        return None
    return tuple(record.args[2])


def _are_counts(values: Any) -> bool:
    return type(values) is tuple and all(
        type(value) is int and 0 <= value < 2**62 for value in values
    )


def _storage(reference: Any) -> tuple[str, str, int]:
    """Return the type, the key and the number of elements of a storage."""
    match reference:
        case Persistent(("storage", Named(kind), str(key), _, int(n_elements), *views)):
            if kind in SIZES and not any(view is not None for view in views):
                return kind, key, n_elements
    raise PickleError("refers to a storage that is not read")


Opened = tuple[Any, Callable[[str], bytes]]


class SmallReads(BufferedReader):
    """A file that refuses large reads: zipfile reads the directory of an archive in one."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has {size:,} bytes")
        return super().read(size)


def _open_zip(path: Path, is_known: Callable[[str], bool]) -> Opened:
    with _zip(path) as archive:
        names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(names) != 1:
            raise PickleError("is a zip archive, but not one of torch")
        folder = names[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"  # since torch 2.1
        if order in archive.NameToInfo and _zip_bytes(archive, order) != b"little":
            raise PickleError("holds numbers with the most significant byte first")
        pickle = read_pickle(BytesIO(_zip_bytes(archive, names[0])), is_known)

    def bytes_of(key: str) -> bytes:
        with _zip(path) as archive:
            return _zip_bytes(archive, f"{folder}data/{key}")

    return pickle.value, bytes_of


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with SmallReads(FileIO(path)) as file, zipfile.ZipFile(file) as archive:
            yield archive
    except ZIP_ERRORS as error:
        raise PickleError(f"is a damaged zip archive ({error})") from None


def _zip_bytes(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a member of the archive, which is as large as its part of the file."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise PickleError(f"lacks {shown(name)}") from None
    if info.compress_type != zipfile.ZIP_STORED:
        raise PickleError("is compressed, as torch never does")
    with archive.open(info) as member:
        return b"".join(iter(partial(member.read, BLOCK_BYTES), b""))


def _open_legacy(path: Path, is_known: Callable[[str], bool]) -> Opened:
    """Open a file of pickles: three of the format, the value, the keys; then the storages."""
    with path.open("rb") as file:
        if _first(file, is_known) != LEGACY_MAGIC:
            raise PickleError("is not a file of torch.save")
        for _ in ("protocol", "sizes of C types"):
            read_pickle(file, is_known)
        pickle = read_pickle(file, is_known)
        keys = read_pickle(file, is_known).value
        places = _places(file, path.stat().st_size, pickle, keys)

    def bytes_of(key: str) -> bytes:
        if key not in places:
            raise PickleError(f"lacks the storage {shown(key)}")
        start, n_bytes = places[key]
        with path.open("rb") as file:
            file.seek(start)
            return file.read(n_bytes)

    return pickle.value, bytes_of


def _first(file: BinaryIO, is_known: Callable[[str], bool]) -> Any:
    try:
        return read_pickle(file, is_known).value
    except PickleError:
        return None


def _places(file: BinaryIO, n_file: int, pickle: Pickle, keys: Any) -> dict[str, tuple[int, int]]:
    """Return the offset and the number of bytes of each storage, in the order of its `keys`."""
    kinds = {key: kind for kind, key, _ in map(_storage, pickle.references)}
    places: dict[str, tuple[int, int]] = {}
    for key in keys if type(keys) is list else ():
        if type(key) is not str or key not in kinds:
            raise PickleError(f"holds a storage {shown(key)} of no tensor")
        n_bytes = int.from_bytes(file.read(8), "little") * SIZES[kinds[key]]
        start = file.tell()
        if start + n_bytes > n_file:
            raise PickleError(f"is cut short: {n_file:,} bytes, and more are announced")
        places[key] = start, n_bytes
        file.seek(start + n_bytes)
    return places
