"""Files that are whole or absent: written beside their place, synced, then renamed.

Nothing here knows what is in a file. A lock belongs to the process that holds it, and ends with it.
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nmtkit.errors import UserError, shown

SEAL = "sha256"  # the key of the hash of a file's other keys
# Maximum size of a record: enough for the manifest of a training that keeps 3,000 checkpoints.
MAX_RECORD_BYTES = 2**21
BLOCK_BYTES = 2**18  # hashed at a time, as hashlib.file_digest does
DRAFT = ".partial"  # what is not finished ends in it
DRAFT_MARK = ".nmtkit-draft"  # in what surrounds the draft of a folder that a user names

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


class DamagedError(UserError):
    """A published folder cannot be used."""

    def __init__(self, reason: str, way_out: str) -> None:
        """Take why, and what to do; a caller that knows better what to do uses `reason` alone."""
        super().__init__(f"{reason}; {way_out}")
        self.reason, self.way_out = reason, way_out

    def __reduce__(self) -> tuple[type["DamagedError"], tuple[str, str]]:
        """Let another process raise it again."""
        return DamagedError, (self.reason, self.way_out)


class BusyError(UserError):
    """Another process is writing the artifact."""


class Record(BaseModel):
    """The contents of a JSON file: exactly these keys, with values of exactly these types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def damaged(reason: str, path: Path) -> DamagedError:
    return DamagedError(reason, f"delete {path} and run again, or restore it from a copy")


def first_problem(error: ValidationError) -> str:
    """Return the first thing that pydantic reports, and where it is."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{shown(each)}]" for each in first["loc"])
    if where and first["type"] != "missing":
        where += f" = {shown(first['input'])}"
    return f"{where}: {first['msg']}" if where else first["msg"]


def canonical_json(value: object) -> str:
    """Return JSON that is the same bytes for equal values."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` as canonical JSON."""
    path.write_text(canonical_json(value), encoding="utf-8", newline="\n")


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` to `path` as canonical JSON, with a hash of itself."""
    write_json(path, {**content, SEAL: _seal(content)})


def _seal(content: Mapping[str, Any]) -> str:
    # A damaged file may have half of a surrogate pair.
    text = canonical_json(content).encode("utf-8", errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()


def check_seal(path: Path) -> bool:
    """Check that no byte of a file that `write_sealed` wrote has changed.

    Returns:
        Whether the file contains a hash of itself; that of an older version does not.

    Raises:
        DamagedError: it has changed.
    """
    text = read_utf8(path, MAX_RECORD_BYTES)
    content = read_json(path)
    seal = content.pop(SEAL, None) if isinstance(content, dict) else ""
    if seal is None:
        return False
    if seal != _seal(content) or text != canonical_json({**content, SEAL: seal}):
        raise damaged(f"{path} was altered (it does not match its own sha256)", path.parent)
    return True


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote.

    Raises:
        DamagedError: the file is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(f"{path} is damaged ({error})", path.parent) from None


def read_record(path: Path, kind: type[AnyRecord]) -> AnyRecord:
    """Read a small JSON file that contains a `kind`.

    Raises:
        DamagedError: the file is missing, too large, or contains something else.
    """
    try:
        return kind.model_validate_json(read_bytes(path, MAX_RECORD_BYTES))
    except ValidationError as error:
        raise damaged(f"{path} is damaged ({first_problem(error)})", path.parent) from None


def read_utf8(path: Path, n_bytes: int) -> str:
    """Read a text of at most `n_bytes`.

    Raises:
        DamagedError: the file is missing, too large or not UTF-8.
    """
    try:
        return read_bytes(path, n_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{path} is not UTF-8 text (byte {error.start + 1:,})"
        raise damaged(reason, path.parent) from None


def read_bytes(path: Path, n_bytes: int) -> bytes:
    """Read a file of at most `n_bytes`.

    Raises:
        DamagedError: the file is missing or too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(n_bytes + 1)
    except OSError as error:
        raise damaged(f"{path} cannot be read ({error.strerror})", path.parent) from None
    if len(content) > n_bytes:
        raise damaged(f"{path} has more than {n_bytes:,} bytes", path.parent)
    return content


def sha256_of(path: Path, n_bytes: int = sys.maxsize) -> str:
    """Return the SHA-256 of a file, or of its first `n_bytes`."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while n_read := file.readinto(buffer[:n_bytes]):
            digest.update(buffer[:n_read])
            n_bytes -= n_read
    return digest.hexdigest()


@contextmanager
def locked(path: Path, what: str, note: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Lock `path`; the system releases the lock when the process ends, however it ends.

    The first line of the file names the process that writes or wrote the artifact, the second one
    is its `note`; without a note, the file stays as it is.
    """
    with path.open("a+", encoding="utf-8") as file:
        if not try_lock(file, fcntl.LOCK_EX):
            raise BusyError(
                f"{what} is being made by {_first_line(file)} (lock {path}); wait for it to end, "
                "or stop it"
            )
        if note is not None:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n{json.dumps(note)}\n")
            file.flush()
        yield


def holder_of(lock: Path) -> str | None:
    """Return the process that holds the lock, if there is one."""
    try:
        with lock.open(encoding="utf-8") as file:
            return None if try_lock(file, fcntl.LOCK_SH) else _first_line(file)
    except FileNotFoundError:
        return None


def try_lock(file: TextIO, how: int) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _first_line(file: TextIO) -> str:
    file.seek(0)
    return file.readline().strip() or "another process"


@contextmanager
def draft_of_file(place: Path) -> Iterator[Path]:
    """Provide a path to write, which becomes the file `place` at the end of the `with` block.

    If the block raises, the draft stays, if anything is in it. A link is followed; a device or a
    pipe, such as /dev/null, is written directly.

    Raises:
        BusyError: Another process is writing the file.
        UserError: The file is one that this process has open, such as its standard output.
    """
    if place.exists() and not place.is_file():
        yield place
        return
    if place.exists() and str(place).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(f"{place} is a file that is open already, and would be replaced; name it")
    place = Path(os.path.realpath(place))
    draft = place.with_name(f"{place.name}.partial")
    with draft.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another process is writing {place}; wait for it, or name another file"
            ) from None
        try:
            yield draft
        except BaseException:
            if draft.exists() and not draft.stat().st_size:
                draft.unlink()
            raise
        replace_file(draft, place)


@contextmanager
def draft_of_folder(place: Path) -> Iterator[Path]:
    """Provide a new folder to write, which the `with` block moves to `place`.

    It lies in a folder that a mark tells from one of the user's. The mark is made first and deleted
    last, so that a draft is known, and replaced, whenever its writer was killed.

    Raises:
        BusyError: Another process is writing the folder.
        UserError: `place` exists, or something else is where its draft is to be.
    """
    if os.path.lexists(place):
        raise UserError(f"{place} is there already; name another folder")
    around = place.with_name(f"{place.name}{DRAFT}")
    mark, draft = around / DRAFT_MARK, around / "draft"
    if os.path.lexists(around) and not (around.is_dir() and (mark.exists() or _is_empty(around))):
        raise UserError(
            f"{around}, where the draft of {place} is to be, is not nmtkit's; move it away, or "
            "name another folder"
        )
    around.mkdir(parents=True, exist_ok=True)
    with mark.open("a", encoding="utf-8") as held:
        if not try_lock(held, fcntl.LOCK_EX):
            raise BusyError(
                f"another process is writing {place}; wait for it, or name another folder"
            )
        try:
            delete(draft)
            draft.mkdir()
            yield draft
        finally:
            delete(draft)
            mark.unlink()
            with suppress(OSError):  # something else was put there
                around.rmdir()


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def check_room(folder: Path, n_bytes: int, what: str) -> None:
    """Check that `n_bytes` can be written to `folder`, before hours of work depend on it.

    Args:
        what: what needs them; the subject of the message.

    Raises:
        UserError: fewer bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes:,} bytes in {folder}, where {free:,} are free; free some "
            "space, or choose another --runs-dir"
        )


def share_file(file: Path, place: Path) -> None:
    """Give a published file a second name, or copy it if the file system has no hard links."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def replace_file(new: Path, place: Path) -> None:
    """Move the file `new` to `place` atomically and durably, even if the power fails."""
    sync(new)
    new.replace(place)
    sync(place.parent)


def move_folder(new: Path, place: Path) -> None:
    """Move the folder `new` to `place`, which must not exist, atomically and durably."""
    for path in [*new.rglob("*"), new]:
        sync(path)
    new.rename(place)
    sync(place.parent)


def delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
