"""What the promise of equal bytes covers in a folder of runs."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

UNPROMISED = ("measurements.json", "metrics.jsonl")  # what was measured, not what was made


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of each file that the promise covers, by its path in `folder`."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in UNPROMISED and path.suffix not in (".lock", ".html")
    }


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the paths of the files that only one of two folders has, or that differ in them."""
    return sorted({name for name, _ in ours.items() ^ theirs.items()})
