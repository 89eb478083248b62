"""Files and folders that are whole or absent: written next to their place, synced, then renamed.

In a folder of nmtkit's own, the draft of NAME.json is NAME.partial. Next to a place that a user
names, drafts lie in the folder .NAME.nmtkit, which a mark distinguishes from one of the user's.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from tempfile import gettempdir
from uuid import uuid4

from nmtkit.store.locks import locked
from nmtkit.utils.errors import UserError

DRAFT = ".partial"  # the ending of unfinished files, in a folder of nmtkit's own
MARK = "nmtkit.lock"  # in the folder next to a place that a user names
PERMISSIONS = 0o777  # of a file's mode


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


def check_room(folder: Path, n_bytes: int, what: str) -> None:
    """Raise a UserError that begins with `what` unless `n_bytes` are free in `folder`."""
    if (free := shutil.disk_usage(folder).free) < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes:,} bytes in {folder}, where {free:,} are free; free some "
            "space, or choose another --runs-dir"
        )


def _holds_drafts(folder: Path) -> bool:
    """Return whether `folder` is empty or marked, and so not one of the user's."""
    if not S_ISDIR(folder.lstat().st_mode):
        return False
    names = [path.name for path in folder.iterdir()]
    return not names or (MARK in names and S_ISREG((folder / MARK).lstat().st_mode))


@contextmanager
def beside(place: Path) -> Iterator[Path]:
    """Provide a path for what becomes `place`; what is left there is found again."""
    folder = place.parent / f".{place.name}.nmtkit"  # a place such as "." has no name
    mark, draft = folder / MARK, folder / "draft"
    with ExitStack() as lock:
        is_held = False
        while not is_held:
            with suppress(FileExistsError):
                folder.mkdir()
                if place.is_file():
                    # A user who may not read the file may not read its draft: x where it has r.
                    readers = place.stat().st_mode & 0o444
                    folder.chmod(0o700 | readers | readers >> 2)
            # Not found: another process, which has just finished, deleted the folder.
            with suppress(FileNotFoundError):
                if not _holds_drafts(folder):
                    raise UserError(
                        f"{folder}, where the draft of {place} is to be, is not nmtkit's; move it "
                        "away, or name another place"
                    )
                lock.enter_context(locked(mark, f"{place} is being written", note={}))
                is_held = True
        try:
            yield draft
        finally:
            if not os.path.lexists(draft):
                mark.unlink()
                with suppress(OSError):  # something else was put there
                    folder.rmdir()


def file_of(place: Path) -> Path | None:
    """Return the file that is replaced to write `place`, or None for a device or a pipe."""
    if place.exists() and not place.is_file():
        return None
    if place.exists() and str(place).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(f"cannot replace {place}, an open file of this process; give its own path")
    if place.exists() and not place.stat().st_mode & 0o222:
        raise UserError(f"{place} is read-only, and is not replaced; name another file")
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
            raise UserError(f"{place} is there already; name another folder")
        draft.mkdir()
        yield draft


@contextmanager
def _new_draft(place: Path) -> Iterator[Path]:
    """Provide a path `beside` a place, which is moved there, or deleted if the block raises."""
    with beside(place) as draft:
        try:
            delete(draft)
            yield draft
            move(draft, place)
        finally:
            delete(draft)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provide a folder for this process alone, and delete what those left that were killed."""
    for draft in Path(gettempdir()).glob(".nmtkit-*.nmtkit/draft"):
        place = draft.parent.with_name(draft.parent.stem[1:])
        with suppress(OSError, UserError):  # it is in use
            if draft.parent.lstat().st_uid == os.getuid():
                with beside(place):
                    delete(draft)
    with beside(Path(gettempdir(), f"nmtkit-{uuid4().hex}")) as draft, ExitStack() as at_end:
        at_end.callback(shutil.rmtree, draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        yield draft
