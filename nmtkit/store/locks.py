"""Lock files. The system releases them when the process that holds them ends."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from nmtkit.store.links import no_follow
from nmtkit.store.records import canonical_json
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

# Errors of flock on a file system without locks.
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
PATIENCE_S = 1.0  # time that passes before a message about waiting
PAUSE_S = 0.05  # between two attempts


class BusyError(UserError):
    """Another process holds the lock."""


class NoLocksError(UserError):
    """The file system does not lock files."""


@contextmanager
def locked(
    path: Path,
    work: str,
    *,
    note: Mapping[str, Any] | None = None,
    shared: bool = False,
    wait_s: float = 0.0,
) -> Iterator[None]:
    """Hold the lock file `path`; the system releases it when the process ends, even by a kill.

    Args:
        path: The lock file, in a folder that exists. Only the process that holds it may delete it.
        work: The protected work, for errors: "X is being written".
        note: JSON about this process, written below a line with its number and host.
        shared: Hold it together with other processes that share it.
        wait_s: Maximum time to wait if another process holds it.

    Raises:
        BusyError: Another process holds it.
        NoLocksError: The file system has no locks.
        UserError: The lock file is a link.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    begin = time.monotonic()
    is_reported = False
    while True:
        # The file is opened at every attempt, since its holder may delete it.
        with open(path, "a+", encoding="utf-8", opener=no_follow) as file:
            if not _try_lock(file, mode):
                holder = f"{work} by {_first_line(file)} (lock {path})"
                waited_s = time.monotonic() - begin
                if waited_s >= wait_s:
                    raise BusyError(f"{holder}; wait for it to finish, or stop it")
                if not is_reported and waited_s >= PATIENCE_S:
                    progress.log(
                        f"{holder}; waiting for it to finish (`kill -CONT` continues a stopped "
                        "process)"
                    )
                    is_reported = True
                time.sleep(PAUSE_S)
            # Between opening and locking, its holder may have deleted the file, and another
            # process may hold a new one: then this lock protects nothing.
            elif _is_named(file, path):
                if note is not None:
                    file.truncate(0)
                    file.write(f"process {os.getpid()} on {socket.gethostname()}, ")
                    file.write(f"since {datetime.now():%Y-%m-%d %H:%M}\n")
                    file.write(canonical_json(note))
                    file.flush()
                yield
                return


def find_holder(lock: Path) -> str | None:
    """Return the process that holds a lock file, such as "process 12 on host, since 14:05"."""
    if lock.is_symlink() or not lock.is_file():  # no process of nmtkit holds it
        return None
    # A shared lock: two processes that look at the same time do not report each other.
    with suppress(FileNotFoundError), open(lock, encoding="utf-8", opener=no_follow) as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            return _first_line(file)
    return None


def _try_lock(file: TextIO, mode: int) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
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


def _is_named(file: TextIO, path: Path) -> bool:
    """Return whether `path` is the name of the open `file`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def _first_line(file: TextIO) -> str:
    file.seek(0)
    return file.readline().strip() or "another process"
