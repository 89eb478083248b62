"""Token ids of one side of a corpus on disk, memory-mapped: 4.5 million sentences open instantly.

A side named `train.src` consists of three files:

- `train.src.ids`: all sentences end to end, 2 bytes per id if the vocabulary allows it and else 4,
  little-endian;
- `train.src.offsets`: the starts of the sentences and the end of the last one, int64;
- `train.src.json`, written last: the description of the other two.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from nmtkit.store.files import reopen
from nmtkit.store.records import Record, read_record, write_lines
from nmtkit.utils.errors import UserError

IdArray = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
OffsetArray = npt.NDArray[np.int64]

OFFSET_DTYPE = np.dtype("<i8")
IDS_PER_CHUNK = 2**22  # 32 MB as numpy counts them


def id_dtype(n_tokens: int) -> np.dtype[Any]:
    """Return the narrowest type that holds ids below `n_tokens`."""
    return np.dtype("<u2" if n_tokens <= 2**16 else "<u4")


@dataclass(frozen=True)
class PackedIds:
    """Some sentences end to end, cheap to send from a worker process.

    Attributes:
        ids: The ids of all sentences (sum of lengths,).
        lengths: The numbers of ids of the sentences (n_sentences,).
    """

    ids: IdArray
    lengths: OffsetArray


def pack(sequences: Sequence[Sequence[int]], n_tokens: int) -> PackedIds:
    """Concatenate sentences of ids below `n_tokens`."""
    # int64 first: an id outside of the vocabulary must not wrap around in 16 bits.
    lengths = np.fromiter(map(len, sequences), OFFSET_DTYPE, len(sequences))
    ids = np.fromiter(chain.from_iterable(sequences), np.int64, int(lengths.sum()))
    assert not len(ids) or (ids.min() >= 0 and ids.max() < n_tokens), "an id outside the vocabulary"
    return PackedIds(ids.astype(id_dtype(n_tokens)), lengths)


class _Header(Record):
    """The contents of the json file."""

    dtype: Literal["<u2", "<u4"]
    n_sentences: Annotated[int, Field(ge=0)]
    n_ids: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class IdsWriter:
    """Appends sentences to the files of a side.

    Attributes:
        ids: File of the ids.
        offsets: File of the offsets.
        written: The numbers "n_sentences" and "n_ids" so far.
    """

    ids: IO[bytes]
    offsets: IO[bytes]
    written: dict[str, int]

    @property
    def paths(self) -> tuple[Path, Path]:
        """The paths of both files."""
        return Path(self.ids.name), Path(self.offsets.name)

    def append(self, packed: PackedIds) -> None:
        """Write sentences."""
        self.ids.write(packed.ids.tobytes())
        ends = self.written["n_ids"] + np.cumsum(packed.lengths, dtype=OFFSET_DTYPE)
        self.offsets.write(ends.tobytes())
        self.written["n_ids"] += len(packed.ids)
        self.written["n_sentences"] += len(packed.lengths)

    def flush(self) -> dict[str, int]:
        """Flush the files, and return the arguments of a writer that continues them."""
        self.ids.flush()
        self.offsets.flush()
        return dict(self.written)


@contextmanager
def ids_writer(
    prefix: Path, n_tokens: int, *, n_sentences: int = 0, n_ids: int = 0
) -> Iterator[IdsWriter]:
    """Open a side for writing; its files are complete after the `with` block.

    Args:
        prefix: The path of the side, such as train.src in the folder of a corpus.
        n_tokens: Size of the vocabulary.
        n_sentences: To continue the files of an earlier writer, the number of its sentences to
            keep. The files are truncated there.
        n_ids: Number of ids of these sentences.
    """
    dtype = id_dtype(n_tokens)
    # n sentences have n + 1 offsets; the first one is 0.
    n_bytes = (n_sentences + 1) * OFFSET_DTYPE.itemsize if n_sentences else 0
    with (
        reopen(_path(prefix, "ids"), n_ids * dtype.itemsize) as ids,
        reopen(_path(prefix, "offsets"), n_bytes) as offsets,
    ):
        if n_bytes == 0:
            offsets.write(np.zeros(1, OFFSET_DTYPE).tobytes())
        writer = IdsWriter(ids, offsets, {"n_sentences": n_sentences, "n_ids": n_ids})
        yield writer
    write_lines(_path(prefix, "json"), [json.dumps({"dtype": dtype.str, **writer.written})])


@dataclass(frozen=True)
class Ids:
    """The sentences of one side, read from disk on access.

    Sentence i is `ids[offsets[i] : offsets[i + 1]]`.

    Attributes:
        ids: All sentences end to end (n_ids,).
        offsets: Starts of the sentences, and the end of the last one (n_sentences + 1,).
    """

    ids: IdArray
    offsets: OffsetArray

    @classmethod
    def open(cls, prefix: Path) -> Self:
        """Map the files of a side.

        Args:
            prefix: The path of the side, as for `ids_writer`.

        Raises:
            UserError: The files do not belong together.
        """
        header = read_record(_path(prefix, "json"), _Header)
        ids_path = _path(prefix, "ids")
        offsets_path = _path(prefix, "offsets")
        ids = _map(ids_path, np.dtype(header.dtype), header.n_ids)
        offsets = _map(offsets_path, OFFSET_DTYPE, header.n_sentences + 1)
        if offsets[0] != 0 or offsets[-1] != header.n_ids or (np.diff(offsets) < 0).any():
            raise UserError(f"{offsets_path} is damaged: its offsets do not cover {ids_path.name}")
        return cls(ids, offsets)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> OffsetArray:
        """The numbers of ids of the sentences, including end symbols (n_sentences,)."""
        return np.diff(self.offsets)

    def counts(self, n_tokens: int) -> npt.NDArray[np.int64]:
        """Count the occurrences of all ids below `n_tokens` (n_tokens,)."""
        # In chunks, since numpy converts ids to 64 bits to count them.
        counts = np.zeros(n_tokens, np.int64)
        for start in range(0, len(self.ids), IDS_PER_CHUNK):
            counts += np.bincount(self.ids[start : start + IDS_PER_CHUNK], minlength=n_tokens)
        return counts


def _path(prefix: Path, suffix: str) -> Path:
    """Return a file of a side; `with_suffix` would remove the ".src" of "train.src"."""
    return prefix.with_name(f"{prefix.name}.{suffix}")


def _map(path: Path, dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
    """Map a file of `length` numbers.

    Args:
        dtype: Type of the numbers.
        length: Their expected number.
    """
    n_bytes = path.stat().st_size
    expected = length * dtype.itemsize
    if n_bytes != expected:
        raise UserError(f"{path} is damaged: {n_bytes:,} bytes, not the expected {expected:,}")
    if length == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
