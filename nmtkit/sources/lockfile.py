"""The lock file of downloads: the hash and size of each file at its first download.

It serves files whose sha256 was not published: the first download determines the content, and every
later one must match it. Only the user removes an entry.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nmtkit.artifacts import canonical_json, replace_file
from nmtkit.errors import UserError
from nmtkit.sources.catalog import Sha256


class Record(BaseModel):
    """A file as it was at its first download."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    sha256: Sha256
    n_bytes: Annotated[int, Field(gt=0)]


_Records = TypeAdapter(dict[str, Record])


def place(downloads_dir: Path) -> Path:
    """Return the path of the lock file."""
    return downloads_dir / "lock.json"


def find(url: str, downloads_dir: Path) -> Record | None:
    """Return the record of the file's first download, if there was one.

    Raises:
        UserError: the lock file is damaged.
    """
    return _read(place(downloads_dir)).get(url)


def note(url: str, seen: Record, downloads_dir: Path) -> Record:
    """Record a download unless it was recorded before, and return the first record.

    Raises:
        UserError: the lock file is damaged.
    """
    downloads_dir.mkdir(parents=True, exist_ok=True)
    path = place(downloads_dir)
    with waiting_lock(path.with_suffix(".lock")):
        records = _read(path)
        if url not in records:
            records[url] = seen
            _write(path, records)
        return records[url]


def _read(path: Path) -> dict[str, Record]:
    if not path.exists():
        return {}
    try:
        return _Records.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = " at " + ".".join(map(str, first["loc"])) if first["loc"] else ""
        raise UserError(
            f"{path} is damaged{where} ({first['msg']}); repair it, or remove it to trust the "
            "files as they are now"
        ) from None


def _write(path: Path, records: dict[str, Record]) -> None:
    temporary = path.with_suffix(".partial")
    content = {url: record.model_dump() for url, record in records.items()}
    temporary.write_text(canonical_json(content), encoding="utf-8", newline="\n")
    replace_file(temporary, path)


@contextmanager
def waiting_lock(path: Path) -> Iterator[None]:
    """Wait for the lock on `path`, and hold it; the lock of a killed process is released."""
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
