"""Files and folders that are complete or absent: written as drafts, synced, then renamed.

In nmtkit's own folders, the draft of NAME.json is NAME.partial. The draft of a path that the user
named is in the folder .NAME.nmtkit next to it.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from math import inf
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryDirectory
from typing import IO, Any, TextIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from nmtkit import __version__
from nmtkit.utils.errors import Log, UserError, shown

SEAL = "sha256"  # the key of the hash of a file's other keys
# Maximum size of a record: enough for the manifest of a training that keeps 3,000 checkpoints.
MAX_RECORD_BYTES = 2**21
MAX_VERSION = 30  # characters of a version that are compared
DRAFT = ".partial"  # what is not whole ends in it, in a folder of nmtkit's own
LOCK = "nmtkit.lock"  # in the folder of a draft next to a path that the user named
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}  # what flock may raise
PERMISSIONS = 0o777  # of a file's mode
PATIENCE_S, PAUSE_S = 1.0, 0.05  # how long a lock is waited for in silence, and between two tries

AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


class DamagedError(UserError):
    """A published folder cannot be used."""

    def __init__(self, reason: str, way_out: str) -> None:
        """A caller that knows better what to do uses `reason` alone."""
        super().__init__(f"{reason}; {way_out}")
        self.reason, self.way_out = reason, way_out

    def __reduce__(self) -> tuple[type["DamagedError"], tuple[str, str]]:
        """Let another process raise it again."""
        return DamagedError, (self.reason, self.way_out)


class NewerVersionError(DamagedError):
    """A folder was written by a newer version of nmtkit, which this one cannot read."""


class BusyError(UserError):
    """Another process is writing the artifact."""


class NoLocksError(UserError):
    """The file system does not lock files."""


class Record(BaseModel):
    """The contents of a JSON file: exactly these keys, with values of exactly these types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def damaged(reason: str, path: Path) -> DamagedError:
    """Return the error for the folder `path` whose files are not those that were published.

    Only this error suggests deleting something: the files failed the check of a hash or a size.
    """
    return DamagedError(reason, f"delete {path} and run again, or restore it from a copy")


def unreadable(path: Path, error: ValidationError) -> DamagedError:
    """Return the error for a JSON file whose contents are not those of its kind.

    Args:
        path: The file. If it belongs to an artifact, the manifest next to it names the version of
            nmtkit that wrote it.
        error: What pydantic found.
    """
    version = _writer(path)
    if _release(version) > _release(__version__):
        reason = f"{path} was written by a newer version of nmtkit ({version})"
        return NewerVersionError(reason, f"update nmtkit, which is {__version__} here")
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] in ("extra_forbidden", "unknown_key"):
        reason = f"{path} has a key that nmtkit {__version__} does not know"
        remedy = "update nmtkit, or restore the file from a copy"
        return DamagedError(f"{reason} ({first_problem(error)})", remedy)
    return DamagedError(f"{path} is damaged ({first_problem(error)})", "restore it from a copy")


def _writer(path: Path) -> str:
    """Return the version of nmtkit that wrote an artifact, or "" if that is unknown."""
    with suppress(DamagedError, ValueError, RecursionError, TypeError, KeyError):
        content = json.loads(read_bytes(path.parent / "manifest.json", MAX_RECORD_BYTES))
        return str(content["made_by"]["nmtkit"])
    return ""


def _release(version: str) -> list[int]:
    """Return the numbers of a version, which compare as versions do."""
    return [int(number) for number in re.findall(r"\d+", version[:MAX_VERSION])]


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
    path.write_text(canonical_json(value), encoding="utf-8", newline="\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a file with a hash of it, which `read_sealed` checks."""
    return {**content, SEAL: hashlib.sha256(canonical_json(content).encode("utf-8")).hexdigest()}


def read_sealed(path: Path, kind: type[AnyRecord], n_bytes: int = MAX_RECORD_BYTES) -> AnyRecord:
    """Do what `read_record` does, and check that no byte of what is `sealed` changed."""
    text = read_bytes(path, n_bytes)
    seal = re.search(rb',\n "sha256": "([0-9a-f]{64})"', text)
    content = text[: seal.start()] + text[seal.end() :] if seal else b""
    is_intact = seal is not None and hashlib.sha256(content).hexdigest().encode() == seal[1]
    try:
        record = read_record(path, kind, n_bytes)
    except DamagedError as error:
        if is_intact or isinstance(error, NewerVersionError):
            raise
        raise damaged(error.reason, path.parent) from None
    if not is_intact:
        seen = f"{path} was altered, or is of an earlier version (it does not match its own sha256)"
        raise damaged(seen, path.parent)
    return record


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote; raise DamagedError if the file is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({error})", "restore it from a copy") from None


def read_record(
    path: Path, kind: type[AnyRecord], n_bytes: int = MAX_RECORD_BYTES, n_skipped: int = 0
) -> AnyRecord:
    """Read JSON that is a `kind`, after some lines; raise DamagedError if it is something else."""
    try:
        return kind.model_validate_json(read_bytes(path, n_bytes).split(b"\n", n_skipped)[-1])
    except ValidationError as error:
        raise unreadable(path, error) from None


def read_utf8(path: Path, n_bytes: int) -> str:
    """Do what `read_bytes` does, and check that it is UTF-8."""
    try:
        return read_bytes(path, n_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{path} is not UTF-8 text (byte {error.start + 1:,})"
        raise DamagedError(reason, "restore it from a copy") from None


def read_bytes(path: Path, n_bytes: int) -> bytes:
    """Read a file; raise DamagedError if it is missing or has more than `n_bytes`."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # a buffer of `n_bytes` would take longer
            content = file.read(min(n_bytes, size) + 1)
    except OSError as error:
        reason = f"{path} cannot be read ({error.strerror})"
        raise DamagedError(reason, "check its path and its permissions") from None
    if len(content) > n_bytes:
        raise DamagedError(f"{path} has more than {n_bytes:,} bytes", "restore it from a copy")
    return content


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(
    path: Path,
    what: str,
    *,
    note: Mapping[str, Any] | None = None,
    shared: bool = False,
    log: Log | None = None,
    wait_s: float = inf,
) -> Iterator[None]:
    """Hold the lock file `path`; the system releases it when the process ends, however it ends.

    Args:
        path: The lock file, in a folder that exists. Only the process that holds it may delete it.
        what: What the lock protects, for errors: "X is being written".
        note: What the file says of this process, below a line with its number and host.
        shared: Hold it together with others that share it.
        say: Prints that the lock is waited for. Without it, nothing is waited for.
        wait_s: Maximum time to wait.

    Raises:
        BusyError: Another process holds it.
        NoLocksError: The file system has no locks.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    begin = time.monotonic()
    is_reported = False
    while True:
        with path.open("a+", encoding="utf-8") as file:
            if not _try_lock(file, mode):
                held = f"{what} by {_first_line(file)} (lock {path})"
                waited_s = time.monotonic() - begin
                if log is None or waited_s >= wait_s:
                    raise BusyError(f"{held}; wait for it to end, or stop it")
                if not is_reported and waited_s >= PATIENCE_S:
                    log(f"{held}; waiting for it to end (`kill -CONT` continues a stopped process)")
                    is_reported = True
                time.sleep(PAUSE_S)
            # Between opening and locking, its holder may have deleted the file, and another
            # process may hold a new one: then this lock protects nothing.
            elif _is_named(file, path):
                if note is not None:
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
                    file.write(canonical_json(note))
                    file.flush()
                yield
                return


def _is_named(file: TextIO, path: Path) -> bool:
    """Return whether `path` is the name of the open `file`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def holder_of(lock: Path) -> str | None:
    with suppress(FileNotFoundError), lock.open(encoding="utf-8") as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            return _first_line(file)
    return None


def _try_lock(file: TextIO, how: int) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise NoLocksError(
            f"the file system of {Path(file.name).parent} has no locks ({error.strerror}), without "
            "which two processes could write one file; mount it with -o flock (Lustre), or with a "
            "lock daemon or -o local_lock=flock (NFS), or choose a folder elsewhere"
        ) from None
    return True


def _first_line(file: TextIO) -> str:
    file.seek(0)
    return file.readline().strip() or "another process"


def write_whole(place: Path, text: str) -> None:
    """Write a file; a kill or a loss of power leaves the old one or the new one."""
    draft = place.with_suffix(DRAFT)
    draft.write_text(text, encoding="utf-8", newline="\n")
    move(draft, place)


def move(new: Path, place: Path) -> None:
    """Move a file or a folder to `place`, atomically and durably, once all of it is on the disk.

    A file that is replaced passes its permissions on.
    """
    if place.is_file() and new.is_file():
        new.chmod(place.stat().st_mode & PERMISSIONS)
    for path in [*new.rglob("*"), new]:
        sync(path)
    new.replace(place)
    sync(place.parent)


def discard(folder: Path, aside: Path) -> None:
    """Delete a folder by way of the name `aside`, so that no kill leaves a part under its own."""
    delete(aside)
    if os.path.lexists(folder):
        folder.rename(aside)
        sync(folder.parent)
        delete(aside)


def delete(path: Path) -> None:
    """Delete a file, a folder or a link, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def share_file(file: Path, place: Path) -> None:
    """Give a published file a second name, or copy it if the file system has no hard links."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reopen(path: Path, n_bytes: int) -> IO[bytes]:
    """Open a file for writing after its first `n_bytes`, and truncate it there.

    Args:
        path: The file. If it does not exist, it is created.
        n_bytes: Number of bytes to keep. The file has at least this many.
    """
    path.touch()
    assert path.stat().st_size >= n_bytes, f"{path} is shorter than {n_bytes:,} bytes"
    file = path.open("r+b")
    file.truncate(n_bytes)
    file.seek(n_bytes)
    return file


def check_room(folder: Path, n_bytes: int, what: str) -> None:
    """Raise a UserError that begins with `what` unless `n_bytes` are free in `folder`."""
    if (free := shutil.disk_usage(folder).free) < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes:,} bytes in {folder}, where {free:,} are free; free some "
            "space, or choose another --runs-dir"
        )


@contextmanager
def draft_next_to(place: Path) -> Iterator[Path]:
    """Provide a path for the draft of a file or folder that the user named.

    The draft is in the folder .NAME.nmtkit, next to a lock file. If it still exists at the end of
    the `with` block, the folder is kept, and the next run finds the draft there.

    Args:
        place: The path that the user named.

    Raises:
        UserError: The folder was not created by nmtkit.
        BusyError: Another process writes to `place`.
    """
    folder = place.parent / f".{place.name}.nmtkit"  # with_name would refuse "."
    lock = folder / LOCK
    draft = folder / "draft"
    # Only the user may read the draft: the file that it replaces may be private.
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_draft_folder(folder):
        raise UserError(
            f"{folder} exists and was not created by nmtkit; move it, or write to another path "
            f"than {place}"
        )
    with locked(lock, f"{place} is being written", note={}):
        try:
            yield draft
        finally:
            if not os.path.lexists(draft):
                lock.unlink()
                with suppress(OSError):  # not empty: the user put a file there
                    folder.rmdir()


def _is_draft_folder(folder: Path) -> bool:
    """Return whether a folder is empty or has a lock file; anything else belongs to the user."""
    if not S_ISDIR(folder.lstat().st_mode):
        return False
    lock = folder / LOCK
    return not any(folder.iterdir()) or (lock.is_file() and not lock.is_symlink())


def file_of(place: Path) -> Path | None:
    """Return the file that is replaced to write `place`, or None for a device or a pipe."""
    if place.exists() and not place.is_file():
        return None
    if place.exists() and str(place).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(f"cannot replace {place}, an open file of this process; give its own path")
    if place.exists() and not place.stat().st_mode & 0o222:
        raise UserError(f"{place} is read-only; make it writable, or write to another file")
    return Path(os.path.realpath(place))


def whole_file(place: Path) -> AbstractContextManager[Path]:
    """Provide a path to write, which becomes the file `place`; a device is written directly."""
    file = file_of(place)
    return _new_draft(file) if file else nullcontext(place)


@contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """Provide a new folder to write, which becomes `place` at the end of the `with` block."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with _new_draft(place) as draft:
        if os.path.lexists(place):
            raise UserError(f"{place} already exists; pass the path of a new folder")
        draft.mkdir()
        yield draft


@contextmanager
def _new_draft(place: Path) -> Iterator[Path]:
    """Provide a path to write, which becomes `place`, or is deleted if the block raises."""
    with draft_next_to(place) as draft:
        try:
            delete(draft)  # of a run that was killed
            yield draft
            move(draft, place)
        finally:
            delete(draft)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provide a folder that only this user can read, and delete it at the end."""
    with TemporaryDirectory(prefix=".nmtkit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
