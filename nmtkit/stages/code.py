"""Which code the result of each stage depends on, and whether an artifact was made by it.

The hash of a room, a folder or a file of the package, is the same wherever it is installed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from nmtkit.reporting.code import OtherCode
from nmtkit.store import Manifest
from nmtkit.tables import read_tables

PACKAGE = Path(__file__).resolve().parent.parent
# Nothing is computed from these: what Python compiled, and what is written for readers.
NO_CODE = (".pyc", ".pyo", ".md")

Code = Mapping[str, Mapping[str, str]]  # of each stage, the hashes of its rooms

ROOMS: Mapping[str, list[str]] = read_tables(__file__, "rooms.toml")  # by stage


@cache
def present_code() -> Code:
    return {stage: hashes(rooms) for stage, rooms in ROOMS.items()}


def other_code(manifest: Manifest) -> OtherCode:
    """Return what made an artifact, and what it was made from, and is not the present code."""
    if manifest.fingerprint is None:
        return {}
    other: dict[str, list[str]] = {}
    for stage, now in present_code().items():
        then = manifest.code.get(stage, {})
        if rooms := [room for room in {**now, **then} if then.get(room) != now.get(room)]:
            other[stage] = rooms
        if stage == manifest.kind:
            break
    return other


def hashes(rooms: Iterable[str]) -> dict[str, str]:
    """Return the hash of each room, such as "model/" or "symbols.py", as the process found it."""
    return {room: _hash(PACKAGE / room) for room in rooms}


@cache
def _hash(room: Path) -> str:
    content = hashlib.sha256()
    paths = room.rglob("*") if room.is_dir() else [room]
    for name, path in sorted((path.relative_to(PACKAGE).as_posix(), path) for path in paths):
        is_hidden = any(part.startswith((".", "__pycache__")) for part in name.split("/"))
        if path.is_file() and not is_hidden and path.suffix not in NO_CODE:
            text = path.read_bytes().replace(b"\r\n", b"\n")
            content.update(f"{name}\0{hashlib.sha256(text).hexdigest()}\n".encode())
    return content.hexdigest()[:16]
