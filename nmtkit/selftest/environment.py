"""What nmtkit finds on this machine: versions, devices, memory, and a disk that keeps its word."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch

from nmtkit import __version__
from nmtkit.errors import UserError
from nmtkit.files import holder_of, locked, move
from nmtkit.machine import Machine

CONSTRAINTS = "constraints.txt"
LEAST_FREE = 10e9  # bytes; a Multi30k run takes less, WMT14 more: `nmtkit plan` says how much


@dataclass(frozen=True)
class Check:
    """One thing that `nmtkit selftest` looked at."""

    what: str
    state: Literal["held", "noted", "skipped", "failed"]  # noted: works, but is worth knowing
    seen: str


def examine(machine: Machine) -> Iterator[Check]:
    """Yield what is found of versions, devices, memory and disk."""
    where = f"Python {platform.python_version()}, {platform.platform()}"
    yield Check("nmtkit", "held", f"{__version__}, {where}")
    yield _versions()
    yield from _devices(machine)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Check("memory", "held", gigabytes(total))
    runs = machine.runs_dir
    there = next(path for path in (runs, *runs.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    seen = f"{gigabytes(free)} free in {there}"
    yield Check("disk", "held" if free >= LEAST_FREE else "noted", seen)
    with tempfile.TemporaryDirectory(dir=there, prefix=".nmtkit-selftest-") as name:
        yield _commits(Path(name))
        yield _locks(Path(name))


def gigabytes(n_bytes: float) -> str:
    """Return a number of bytes in words."""
    return f"{n_bytes / 1e9:,.1f} GB"


def pins() -> dict[str, str]:
    """Return the versions that nmtkit is tested with, by package."""
    package = Path(__file__).resolve().parents[1]
    path = package / CONSTRAINTS
    path = path if path.is_file() else package.parent / CONSTRAINTS
    lines = path.read_text(encoding="utf-8").split("\n")
    named = [line.partition("==") for line in lines if not line.startswith("#")]
    return {name: version for name, is_pin, version in named if is_pin}


def _versions() -> Check:
    others = []
    for name, pinned in pins().items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # of an extra
        if version.split("+")[0] != pinned:  # torch's own builds end in +cpu, +cu130, ...
            others.append(f"{name} {version} (tested: {pinned})")
    if others:
        seen = f"not those that nmtkit is tested with: {', '.join(others)}"
        return Check("versions", "noted", seen)
    return Check("versions", "held", f"those of {CONSTRAINTS}")


def _devices(machine: Machine) -> Iterator[Check]:
    n_cores = machine.n_workers()
    yield Check("CPU", "held", f"{n_cores} cores, {torch.backends.cpu.get_cpu_capability()}")
    if not torch.cuda.is_available():
        yield Check("GPU", "skipped", "torch sees none")
        return
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        precision = "bfloat16" if found.major >= 8 else "float32"
        seen = f"{found.name}, {gigabytes(found.total_memory)}, computes in {precision}"
        yield Check(f"GPU {index}", "held", seen)
    version = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    yield Check("NCCL", "held", version)


def _commits(folder: Path) -> Check:
    """Check that a folder is moved to a name that was taken by none, and files share content."""
    draft, place = folder / "a.partial", folder / "a"
    draft.mkdir()
    (draft / "file").write_bytes(b"content")
    move(draft, place)
    if (place / "file").read_bytes() != b"content" or draft.exists():
        return Check("commits", "failed", f"a renamed folder in {folder.parent} lost its file")
    try:
        (folder / "link").hardlink_to(place / "file")
    except OSError:
        return Check("commits", "noted", "no hard links: files that artifacts share are copied")
    return Check("commits", "held", "fsync, rename, hard links")


def _locks(folder: Path) -> Check:
    """Check that a lock is seen by who opens the file again, as another process does."""
    path = folder / "lock"
    try:
        with locked(path, "a lock is tried", note={}):
            while_held = holder_of(path)
        freed = holder_of(path)
    except UserError as error:
        return Check("locks", "failed", str(error))
    if while_held and not freed:
        return Check("locks", "held", "a second process sees them")
    advice = "run one nmtkit at a time there, or choose another --runs-dir"
    seen = f"files in {folder.parent} are not locked for other processes (flock); {advice}"
    return Check("locks", "failed", seen)
