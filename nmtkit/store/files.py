"""Files and folders that are complete or absent: written as drafts, synced, then renamed.

In nmtkit's own folders, the draft of NAME.json is NAME.partial. The draft of a path that the user
named is in the folder .NAME.nmtkit next to it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from tempfile import TemporaryDirectory
from typing import IO

from nmtkit.store.links import no_follow, write_own
from nmtkit.store.locks import locked
from nmtkit.utils.errors import UserError
from nmtkit.utils.interrupts import raise_if_interrupted

DRAFT = ".partial"  # the ending of unfinished files, in a folder of nmtkit's own
LOCK = "nmtkit.lock"  # in the folder of a draft next to a path that the user named
PERMISSIONS = 0o777  # of a file's mode


def write_whole(place: Path, text: str) -> None:
    """Write a file; a kill or a loss of power leaves the old one or the new one."""
    draft = place.with_suffix(DRAFT)
    write_own(draft, text)
    move(draft, place)


def move(new: Path, place: Path) -> None:
    """Move a file or a folder to `place`, atomically and durably, once all of it is on the disk.

    A file that is replaced passes its permissions on.
    """
    raise_if_interrupted()
    if place.is_file() and new.is_file():
        new.chmod(place.stat().st_mode & PERMISSIONS)
    # Without this, a loss of power could leave the new name with empty files.
    for path in [*new.rglob("*"), new]:
        sync(path)
    new.replace(place)
    sync(place.parent)


def discard(folder: Path, aside: Path) -> None:
    """Delete a folder by way of the name `aside`: no kill leaves a part under its own."""
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
    size = path.stat().st_size if path.exists() else 0
    assert size >= n_bytes, f"{path} is shorter than {n_bytes:,} bytes"
    file = open(path, "a+b", opener=no_follow)  # noqa: SIM115 - the caller closes it
    file.truncate(n_bytes)
    file.seek(n_bytes)
    return file


def check_free_space(folder: Path, n_bytes: int, name: str) -> None:
    """Check that there is enough space before a large file is written.

    Args:
        n_bytes: Size of the file.
        name: Name of the file, for the error.

    Raises:
        UserError: Fewer bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise UserError(
            f"{name} needs {n_bytes:,} bytes in {folder}, but only {free:,} are free; free some "
            "space, or write to another disk"
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
    held_lock = ExitStack()
    while True:
        # Only the user may read the draft: the file that it replaces may be private.
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        # Until the lock is held, another process that writes to `place` may end and delete the
        # folder; then it is created again.
        with suppress(FileNotFoundError):
            if not _is_draft_folder(folder):
                raise UserError(
                    f"{folder} exists and was not created by nmtkit; move it, or write to another "
                    f"path than {place}"
                )
            held_lock.enter_context(locked(lock, f"{place} is being written", note={}))
            break
    with held_lock:
        try:
            yield draft
        finally:
            if not os.path.lexists(draft):
                lock.unlink()
                with suppress(OSError):  # not empty: the user put a file there
                    folder.rmdir()


def delete_leftover(place: Path) -> None:
    """Delete the draft folder of `place` if a run was killed after it had moved the draft there."""
    if (place.parent / f".{place.name}.nmtkit").exists():
        # Its end deletes all but a draft. Another process may hold the lock.
        with suppress(UserError), draft_next_to(place):
            pass


def _is_draft_folder(folder: Path) -> bool:
    """Return whether a folder is empty or has a lock file; anything else belongs to the user.

    Raises:
        FileNotFoundError: Another process has deleted the folder or the lock file.
    """
    if not S_ISDIR(folder.lstat().st_mode):
        return False
    names = [path.name for path in folder.iterdir()]
    if LOCK not in names:
        return not names
    return S_ISREG((folder / LOCK).lstat().st_mode)


def replaced_file(place: Path) -> Path | None:
    """Return the file that is replaced to write `place`, or None for a device or a pipe.

    Raises:
        UserError: The file must not or cannot be replaced.
    """
    if place.exists() and not place.is_file():
        return None
    # /dev/stdout may be a regular file that is open elsewhere and must not be replaced.
    if place.exists() and str(place).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(
            f"{place} is an open file of this process and cannot be replaced; pass another path"
        )
    if place.exists() and not place.stat().st_mode & 0o222:
        raise UserError(f"{place} is read-only; make it writable, or write to another file")
    # A link stays, and the file that it leads to is replaced.
    return Path(os.path.realpath(place))


def whole_file(place: Path, *, follow_link: bool = True) -> AbstractContextManager[Path]:
    """Provide a path to write. It becomes the file `place`; a device is written directly.

    Args:
        follow_link: If `place` is a link, replace the file that it leads to, not the link. Only
            for a path that the user named.
    """
    file = replaced_file(place) if follow_link else place
    return _new_draft(file) if file else nullcontext(place)


@contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """Provide a new folder to write. It becomes `place` at the end of the `with` block."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with _new_draft(place) as draft:
        if os.path.lexists(place):
            raise UserError(f"{place} already exists; pass the path of a new folder")
        draft.mkdir()
        yield draft


@contextmanager
def _new_draft(place: Path) -> Iterator[Path]:
    """Provide a path to write. It becomes `place`, or is deleted if the block raises."""
    with draft_next_to(place) as draft:
        try:
            # A run that was killed may have left one.
            delete(draft)
            yield draft
            move(draft, place)
        finally:
            # After `move`, there is none any more.
            delete(draft)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provide a folder that only this user can read, and delete it at the end."""
    with TemporaryDirectory(prefix=".nmtkit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
