"""Records: JSON files with a fixed set of keys, and the errors of files that cannot be used.

The same values give the same bytes. A sealed record contains a hash of itself.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nmtkit import __version__
from nmtkit.store.links import write_own
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

SEAL = "sha256"  # the key of the hash of a record's other keys
# Maximum size of a record: enough for the manifest of a training that keeps 3,000 checkpoints.
MAX_RECORD_BYTES = 2**21
MAX_VERSION = 30  # characters of a version that are compared

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


class DamagedError(UserError):
    """A published file or folder cannot be used.

    Attributes:
        reason: The problem and its place.
        way_out: A remedy. A caller that knows a better one uses `reason` only.
    """

    def __init__(self, reason: str, way_out: str) -> None:
        """Join the problem and its remedy in one message."""
        super().__init__(f"{reason}; {way_out}")
        self.reason = reason
        self.way_out = way_out

    def __reduce__(self) -> tuple[type["DamagedError"], tuple[str, str]]:
        """Support pickling, to raise the error in another process."""
        return DamagedError, (self.reason, self.way_out)


class NewerVersionError(DamagedError):
    """A folder was written by a newer version of nmtkit. This one cannot read it."""


class Record(BaseModel):
    """The contents of a JSON file: exactly these keys, with values of exactly these types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def damaged(reason: str, path: Path) -> DamagedError:
    """Return the error for a folder whose files are not those that were published.

    Only this error suggests deleting something: the files failed the check of a hash or a size.

    Args:
        reason: The problem and its place.
    """
    return DamagedError(reason, f"delete {path} and rerun, or restore it from a backup")


def unreadable(path: Path, error: ValidationError) -> DamagedError:
    """Return the error for a JSON file whose contents are not those of its kind.

    Args:
        path: The file. If it belongs to an artifact, the manifest next to it names the version of
            nmtkit that wrote it.
    """
    # Files of a newer version are not damaged, only unknown here.
    version = ""
    with suppress(DamagedError, ValueError, RecursionError, TypeError, KeyError):
        content = json.loads(read_bytes(path.parent / "manifest.json", MAX_RECORD_BYTES))
        version = str(content["made_by"]["nmtkit"])
    if _version_numbers(version) > _version_numbers(__version__):
        reason = f"{path} was written by a newer version of nmtkit ({version})"
        return NewerVersionError(reason, f"update nmtkit, which is {__version__} here")
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] in ("extra_forbidden", "unknown_key"):
        reason = f"{path} has a key that nmtkit {__version__} does not know"
        remedy = "update nmtkit, or restore the file from a backup"
        return DamagedError(f"{reason} ({first_problem(error)})", remedy)
    return DamagedError(f"{path} is damaged ({first_problem(error)})", "restore it from a backup")


def _version_numbers(version: str) -> list[int]:
    """Return the numbers of a version, whose order is that of versions."""
    return [int(number) for number in re.findall(r"\d+", version[:MAX_VERSION])]


def first_problem(error: ValidationError) -> str:
    """Return the first problem that pydantic found, and its place."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{quote(key)}]" for key in first["loc"])
    if where and first["type"] != "missing":
        where += f" = {quote(first['input'])}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


# Writing


def canonical_json(value: object) -> str:
    """Return JSON that is the same bytes for equal values."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write canonical JSON to a file."""
    write_own(path, canonical_json(value))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file with one string per line."""
    write_own(path, "".join(f"{line}\n" for line in lines))


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record with a hash of it. `read_sealed` checks the hash."""
    return {**content, SEAL: hashlib.sha256(canonical_json(content).encode("utf-8")).hexdigest()}


# Reading


def read_sealed(path: Path, kind: type[AnyRecord], n_bytes: int = MAX_RECORD_BYTES) -> AnyRecord:
    """Read a record that was sealed, and check that no byte of it changed.

    Args:
        n_bytes: Maximum size of the file.

    Raises:
        DamagedError: The file is missing, is not such a record, or was changed.
    """
    # The hash is cut out of the bytes, not out of parsed values: no other byte may have changed.
    text = read_bytes(path, n_bytes)
    seal = re.search(rb',\n "sha256": "([0-9a-f]{64})"', text)
    is_intact = False
    if seal is not None:
        content = text[: seal.start()] + text[seal.end() :]
        is_intact = hashlib.sha256(content).hexdigest().encode() == seal[1]
    try:
        record = read_record(path, kind, n_bytes)
    except DamagedError as error:
        # An intact file is not damaged, but of another version, and must not be deleted.
        if is_intact or isinstance(error, NewerVersionError):
            raise
        raise damaged(error.reason, path.parent) from None
    if not is_intact:
        reason = (
            f"{path} was altered, or is of an earlier version (it does not match its own sha256)"
        )
        raise damaged(reason, path.parent)
    return record


def read_json(path: Path) -> Any:
    """Read JSON of any kind.

    Raises:
        DamagedError: The file is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({error})", "restore it from a backup") from None


def read_record(
    path: Path, kind: type[AnyRecord], n_bytes: int = MAX_RECORD_BYTES, n_skipped: int = 0
) -> AnyRecord:
    """Read a record.

    Args:
        n_bytes: Maximum size of the file.
        n_skipped: Number of lines before the JSON.

    Raises:
        DamagedError: The file is missing, too large, or is not such a record.
    """
    try:
        return kind.model_validate_json(read_bytes(path, n_bytes).split(b"\n", n_skipped)[-1])
    except ValidationError as error:
        raise unreadable(path, error) from None


def read_utf8(path: Path, n_bytes: int) -> str:
    """Read a text file of at most `n_bytes`.

    Raises:
        DamagedError: It is missing, larger, or not UTF-8.
    """
    try:
        return read_bytes(path, n_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{path} is not UTF-8 text (byte {error.start + 1:,})"
        raise DamagedError(reason, "restore it from a backup") from None


def read_bytes(path: Path, n_bytes: int) -> bytes:
    """Read a file of at most `n_bytes`.

    Raises:
        DamagedError: It is missing, larger, or not a regular file.
    """
    # To open a pipe could wait forever.
    if path.exists() and not path.is_file():
        raise DamagedError(f"{path} is not a regular file", "check its path")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # a buffer of `n_bytes` would take longer
            content = file.read(min(n_bytes, size) + 1)
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror})"
        raise DamagedError(reason, "check its path and its permissions") from None
    if len(content) > n_bytes:
        raise DamagedError(f"{path} has more than {n_bytes:,} bytes", "restore it from a backup")
    return content


def file_sha256(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
