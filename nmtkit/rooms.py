"""The code of this nmtkit: a hash of each room, which is a folder or a file of the package.

It is the same in a checkout, in an installed wheel and on any system: names have "/" and are
sorted, line ends are "\\n", and nothing else of the files counts but their content.
"""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# Nothing is computed from these: what Python compiled, and what is written for readers.
NO_CODE = (".pyc", ".pyo", ".md")


def hashes(rooms: Iterable[str]) -> dict[str, str]:
    """Return the hash of each room, such as "model/" or "symbols.py", as it is on disk.

    The first hash that was computed stays: a process runs the code that it began with.
    """
    return {room: _hash(room) for room in rooms}


@cache
def _hash(room: str) -> str:
    content = hashlib.sha256()
    for name, path in sorted(_files(PACKAGE / room)):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        content.update(f"{name}\0{hashlib.sha256(text).hexdigest()}\n".encode())
    return content.hexdigest()[:16]


def _files(room: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file that counts, by its name from the package on."""
    for path in room.rglob("*") if room.is_dir() else [room]:
        parts = path.relative_to(PACKAGE).parts
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        is_backup = path.name.endswith("~")
        if path.is_file() and not is_hidden and not is_backup and path.suffix not in NO_CODE:
            yield "/".join(parts), path
