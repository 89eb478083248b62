"""Manifests: the list of an artifact's files with their hashes, and of everything it depends on.

A manifest contains no time, host or path: equal inputs and versions give equal bytes. Time,
host and recipe are in measurements.json next to it, with a hash of its own.
"""

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt

from nmtkit import __version__
from nmtkit.store.code_version import versions
from nmtkit.store.records import (
    DamagedError,
    NewerVersionError,
    Record,
    canonical_json,
    file_sha256,
    read_record,
    read_sealed,
    sealed,
    write_json,
)
from nmtkit.utils.text import quote

MANIFEST = "manifest.json"
MEASUREMENTS = "measurements.json"
TEMPORARY = "temporary"  # a folder of a draft that is not published
# Files of models in the formats of other tools; CTranslate2 writes both.
CTRANSLATE2_FILE = "model.bin"
TRANSFORMERS_FILE = "config.json"
FORMAT = 2  # of manifests; any other is refused
N_FINGERPRINT_DIGITS = 16

Facts = Mapping[str, Any]  # ready for JSON


def _inside_folder(name: str) -> str:
    """Validate that a file name stays inside its folder and is safe to print."""
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError("it does not name a file inside the folder")
    return name


class File(Record):
    """The size and the hash of a published file."""

    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(Record):
    """The contents of manifest.json."""

    format: int
    files: dict[Annotated[str, Field(max_length=255), AfterValidator(_inside_folder)], File]
    kind: str
    fingerprint: str | None = None  # the hash of everything it depends on; checkpoints have none
    depends_on: dict[str, Any] = Field(default={})
    # Versions of nmtkit and libraries, and the commit; for a training also its precision. A
    # training that was resumed with another one has both, joined by "+".
    made_by: dict[str, str]
    # Addresses and hashes of the archives that it was built from; these depend on hosts.
    downloads: dict[str, str] = Field(default={})
    # By the stage before, a hash of the content of its artifact that was read.
    inputs: dict[str, str] = Field(default={})
    code: dict[str, dict[str, str]] = Field(default={})  # of earlier versions; not used
    sha256: str  # of all this


class Measurements(BaseModel):
    """The hashes in measurements.json: the files that contain measurements too."""

    measured: dict[str, File]


class _Versioned(BaseModel):
    """The keys that manifests of all versions have in common."""

    format: int
    made_by: dict[str, Any] = Field(default={})


class _AnyManifest(BaseModel):
    """Distinguishes a manifest of nmtkit, of any version, from another program's file."""

    format: int
    kind: str
    files: dict[str, Any]
    made_by: dict[str, str]


def compute_fingerprint(kind: str, depends_on: Facts) -> str:
    """Return the fingerprint that names an artifact: 16 hexadecimal digits.

    Args:
        kind: The stage that publishes it.
        depends_on: Everything that its contents depend on.
    """
    content = canonical_json({"format": FORMAT, "kind": kind, "depends_on": depends_on})
    encoded = content.encode("utf-8", "surrogatepass")  # paths in it may not be Unicode
    return hashlib.sha256(encoded).hexdigest()[:N_FINGERPRINT_DIGITS]


def write_manifest(draft: Path, manifest: Facts, measured: Sequence[str] = ()) -> None:
    """Write the manifest of a folder that is to be published.

    Args:
        manifest: The values of its keys, except for the format, the files and the hash.
        measured: Files that the manifest does not list, because they contain measurements.
    """
    # Sorted: equal files give equal bytes.
    names = []
    for path in sorted(draft.rglob("*")):
        name = path.relative_to(draft).as_posix()
        is_listed = name.split("/")[0] != TEMPORARY and name not in (MANIFEST, *measured)
        if path.is_file() and is_listed:
            names.append(name)
    content = {
        **manifest,
        "format": FORMAT,
        "files": file_entries(draft, names),
        "made_by": {**versions(), **manifest.get("made_by", {})},
    }
    write_json(draft / MANIFEST, sealed(content))


def file_entries(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the sizes and hashes of files, as manifests list them."""
    entries = {}
    for name in names:
        path = folder / name
        entries[name] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    return entries


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        DamagedError: It is missing, was changed, or has the format of another version.
    """
    if regular_size(path, MANIFEST) is None:
        raise _not_an_artifact(path)
    # The format comes first: a manifest of another version need not have the same keys or seal.
    versioned = None
    with suppress(DamagedError):  # `read_sealed` reports more
        versioned = read_record(path / MANIFEST, _Versioned)
    if versioned is not None and versioned.format != FORMAT:
        version = versioned.made_by.get("nmtkit", "of an unknown version")
        format_ = quote(versioned.format)
        reason = f"{path} has format {format_}, but this version of nmtkit reads {FORMAT}"
        if versioned.format > FORMAT:
            remedy = f"update nmtkit (it was written by {quote(version)})"
            raise NewerVersionError(reason, remedy)
        raise DamagedError(reason, f"rebuild it with nmtkit {__version__}")
    return read_sealed(path / MANIFEST, Manifest)


def _not_an_artifact(path: Path) -> DamagedError:
    """Return the error for a path without a manifest."""
    remedy = "run `nmtkit runs` to list the folders of artifacts"
    if not path.exists():
        return DamagedError(f"{path} does not exist", remedy)
    if not path.is_dir():
        return DamagedError(f"{path} is a file, not the folder of an artifact", remedy)
    if (path / CTRANSLATE2_FILE).is_file():
        reason = f"{path} is an export for CTranslate2, which nmtkit does not read"
        return DamagedError(reason, "pass the bundle that was exported")
    if (path / TRANSFORMERS_FILE).is_file():
        reason = f"{path} is a model for Hugging Face's transformers"
        command = f"nmtkit import {shlex.quote(str(path))} BUNDLE"
        return DamagedError(reason, f"convert it first: {command}")
    return DamagedError(f"{path} is not a finished artifact: it has no {MANIFEST}", remedy)


def has_manifest(folder: Path) -> bool:
    """Return whether nmtkit, of any version, published a folder."""
    if regular_size(folder, MANIFEST) is None:
        return False
    try:
        read_record(folder / MANIFEST, _AnyManifest)
    except DamagedError:
        return False
    return True


def file_difference(
    folder: Path, name: str, expected: File, *, check_hash: bool = True
) -> str | None:
    """Compare a file with its entry in the manifest.

    Args:
        check_hash: Read the file. Otherwise only its size is compared.

    Returns:
        The difference as a sentence, or None.
    """
    # A link could lead to a file that changes later, or out of the folder.
    path = folder / name
    size = regular_size(folder, name)
    if size is None:
        seen = "is a link or not a regular file" if os.path.lexists(path) else "is missing"
        return f"{path} {seen} but was published with {expected.bytes:,} bytes"
    if size != expected.bytes:
        return f"{path} has {size:,} bytes but was published with {expected.bytes:,} bytes"
    if check_hash:
        sha256 = file_sha256(path)
        if sha256 != expected.sha256:
            published = f"published as {expected.sha256[:12]}..."
            return f"{path} was altered (sha256 {sha256[:12]}..., {published})"
    return None


def regular_size(folder: Path, name: str) -> int | None:
    """Return the size of a regular file in a folder, or None.

    A link is not a regular file, and neither is a file in a linked folder inside `folder`.
    """
    # One part after another: `lstat` of the whole path would follow links of its folders.
    path = folder
    with suppress(OSError):
        *parents, last = name.split("/")
        for parent in parents:
            path = path / parent
            if path.is_symlink():
                return None
        status = os.lstat(path / last)
        if S_ISREG(status.st_mode):
            return status.st_size
    return None
