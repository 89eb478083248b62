"""Links in a folder of artifacts are never followed: others may have placed them there."""

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from nmtkit.utils.errors import UserError


def no_follow(path: str, flags: int) -> int:
    """Open a file, but no link, pipe or device; an `opener` of the built-in `open`.

    Raises:
        UserError: The path leads to something else than a regular file.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError:
        check_own(Path(path))
        raise
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _foreign(Path(path))
    return descriptor


def write_own(path: Path, text: str) -> None:
    """Write a text file of nmtkit's own; a link in its place is not followed."""
    with open(path, "w", encoding="utf-8", newline="\n", opener=no_follow) as file:
        file.write(text)


def check_own(path: Path) -> None:
    """Check that a folder has only regular files and folders, or that a path is one of these.

    Args:
        path: The folder or the file. It need not exist.

    Raises:
        UserError: The path, or a path in the folder, is a link, a pipe or a device.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # also if another process deletes it meanwhile
        return
    if S_ISDIR(mode):
        for content in path.iterdir():
            check_own(content)
    elif not S_ISREG(mode):
        raise _foreign(path)


def _foreign(path: Path) -> UserError:
    """Return the error for a link, a pipe or a device where nmtkit writes."""
    kind = f"a link to {path.readlink()}" if path.is_symlink() else "neither a file nor a folder"
    return UserError(
        f"{path} is {kind}, which nmtkit did not create and will not follow; delete it"
    )
