"""Artifacts: directories that are published whole, found by fingerprint and never overwritten.

An artifact is written as a draft beside its place, under a lock, and renamed once every file is
hashed and synced: what has its final name is complete. A manifest contains no time, host or path,
so that equal inputs give equal bytes; measurements are in files beside it, which have a hash too.
"""

import hashlib
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import inf
from os.path import islink
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, NonNegativeInt

from nmtkit import __version__
from nmtkit.store import files
from nmtkit.store.code_version import versions
from nmtkit.store.files import DRAFT, SEAL, DamagedError, NewerVersionError, Record, damaged, locked
from nmtkit.utils.errors import Log, UserError, shown

MANIFEST = "manifest.json"
MEASUREMENTS = "measurements.json"
TEMPORARY = "temporary"  # a folder of a draft that is not published
NAMES = 16 * "[0-9a-f]"  # of artifacts: their fingerprints
# What else may be beside an artifact, and ends in one of these.
ASIDE = ".damaged"  # what a stage moved out of a draft
DISCARDED = ".discarded"  # not deleted completely
FORMAT = 2  # of manifests; any other is refused
FREEING = "gc.lock"  # in the folder of artifacts; shared by all that make one

Facts = Mapping[str, Any]  # ready for JSON


def _inside(name: str) -> str:
    """Check that `name` stays inside its folder and is safe to print."""
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError("it does not name a file inside the folder")
    return name


class File(Record):
    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Versioned(BaseModel):
    """The keys that manifests of all versions have in common."""

    format: int
    made_by: dict[str, Any] = Field(default={})


class Manifest(Record):
    format: int
    files: dict[Annotated[str, Field(max_length=255), AfterValidator(_inside)], File]
    kind: str
    fingerprint: str | None = None  # the hash of everything it depends on; checkpoints have none
    depends_on: dict[str, Any] = Field(default={})
    # Versions of nmtkit and libraries, and the commit; of a training also its precision. A training
    # that was resumed with another one has both, joined by "+".
    made_by: dict[str, str]
    # Addresses and hashes of the archives that it was made from; which they are depends on hosts.
    downloads: dict[str, str] = Field(default={})
    # By the stage before, a hash of the content of its artifact that was read.
    inputs: dict[str, str] = Field(default={})
    code: dict[str, dict[str, str]] = Field(default={})  # of earlier versions; not used
    sha256: str  # of all this


@dataclass(frozen=True)
class Artifact:
    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Return the path of a file; raise DamagedError unless the manifest lists it."""
        if name not in self.manifest.files:
            reason = f"{self.path} was published without {name}"
            version = self.manifest.made_by.get("nmtkit", "")
            raise DamagedError(reason, f"read it with the nmtkit that wrote it ({shown(version)})")
        return self.path / name


def fingerprint_of(kind: str, depends_on: Facts) -> str:
    """Return the 16 hex digits that name the artifact of this `kind` made from `depends_on`."""
    content = files.canonical_json({"format": FORMAT, "kind": kind, "depends_on": depends_on})
    of_any_path = content.encode("utf-8", "surrogatepass")  # which may be no Unicode
    return hashlib.sha256(of_any_path).hexdigest()[:16]


@dataclass(frozen=True)
class Store:
    """The artifacts under one folder: `<folder>/<kind>/<fingerprint>/`."""

    folder: Path
    wait_s: float = inf  # at most, for who makes the same, where that is said

    def place(self, kind: str, fingerprint: str) -> Path:
        return self.folder / kind / fingerprint

    def draft_place(self, kind: str, fingerprint: str) -> Path:
        return self.place(kind, fingerprint).with_suffix(DRAFT)

    def find(self, kind: str, fingerprint: str) -> Artifact | None:
        """Return the artifact if it was published; raise DamagedError if it is not whole."""
        path = self.place(kind, fingerprint)
        return open_directory(path, kind) if path.is_dir() else None

    def all(self, kind: str) -> Iterator[Artifact]:
        """Yield the artifacts of this kind that are whole."""
        for path in sorted((self.folder / kind).glob(NAMES)):
            with suppress(DamagedError):
                if artifact := self.find(kind, path.name):
                    yield artifact

    def folders(self, kind: str) -> list[Path]:
        """Return the folders of artifacts of this kind, whole or not."""
        ends = ("", DRAFT, ASIDE, DISCARDED)
        found = (path for end in ends for path in (self.folder / kind).glob(NAMES + end))
        return sorted(filter(Path.is_dir, found))

    def lock(
        self, kind: str, fingerprint: str, note: Facts | None = None, log: Log | None = None
    ) -> AbstractContextManager[None]:
        """Keep other processes from making the same; the lock file says of it what is in `note`."""
        place = self.place(kind, fingerprint)
        place.parent.mkdir(parents=True, exist_ok=True)
        what = f"{kind} {fingerprint} is being made"
        return locked(place.with_suffix(".lock"), what, note=note, log=log, wait_s=self.wait_s)

    def holder(self, kind: str, fingerprint: str) -> str | None:
        return files.holder_of(self.place(kind, fingerprint).with_suffix(".lock"))

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Keep every process from making an artifact; raise BusyError if one is being made."""
        for path in sorted(self.folder.glob(f"*/{NAMES}.lock")):
            with locked(path, f"nothing is freed: {path.parent.name} {path.stem} is being made"):
                pass
        with locked(self.folder / FREEING, f"nothing is freed: {self.folder} is being used"):
            yield

    def free(self, path: Path) -> None:
        """Delete a folder of an artifact; after a kill, what is left of it has another name."""
        files.discard(path, path.with_suffix(DISCARDED))

    @contextmanager
    def writing(
        self, kind: str, fingerprint: str, note: Facts | None = None, log: Log | None = None
    ) -> Iterator[None]:
        """Hold the locks without which an artifact is neither written nor deleted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            locked(self.folder / FREEING, f"space in {self.folder} is being freed", shared=True),
            self.lock(kind, fingerprint, note, log),
        ):
            yield

    @contextmanager
    def draft(
        self,
        kind: str,
        fingerprint: str,
        *,
        resume: bool = False,
        note: Facts | None = None,
        log: Log | None = None,
    ) -> Iterator[Path]:
        """Provide a folder to write the artifact to, locked; `resume` keeps what is in it."""
        with self.writing(kind, fingerprint, note or {}, log):
            draft = self.draft_place(kind, fingerprint)
            files.delete(draft.with_suffix(DISCARDED))
            if not resume:
                files.delete(draft)
            draft.mkdir(exist_ok=True)
            try:
                yield draft
            finally:
                if draft.is_dir() and not any(draft.iterdir()):
                    draft.rmdir()

    def publish(
        self,
        kind: str,
        fingerprint: str,
        *,
        depends_on: Facts,
        measurements: Facts,
        inputs: Mapping[str, str] = {},
        made_by: Mapping[str, str] = {},
        downloads: Mapping[str, str] = {},
        measured: Sequence[str] = (),
    ) -> Artifact:
        """Publish the draft of the artifact; its manifest does not name the files `measured`."""
        draft, place = self.draft_place(kind, fingerprint), self.place(kind, fingerprint)
        where = {"host": socket.gethostname()}
        when = {"published": datetime.now(UTC).isoformat(timespec="seconds")}
        told = {**measurements, **where, **when, "measured": _entries(draft, measured)}
        files.write_json(draft / MEASUREMENTS, files.sealed(told))
        what = {"kind": kind, "fingerprint": fingerprint, "depends_on": depends_on}
        manifest = {**what, "inputs": inputs, "made_by": made_by, "downloads": downloads}
        write_manifest(draft, manifest, [MEASUREMENTS, *measured])
        # Or else a loss of power could leave neither it nor what is temporary.
        files.sync(draft / MANIFEST)
        # By way of another name: a kill must not leave a journal whose files are gone.
        files.discard(draft / TEMPORARY, draft.with_suffix(DISCARDED))
        files.move(draft, place)
        return open_directory(place)


def publish_directory(draft: Path, place: Path, manifest: Facts) -> None:
    """Publish the folder `draft` as `place`, which must not exist."""
    write_manifest(draft, manifest)
    files.move(draft, place)


def write_manifest(draft: Path, manifest: Facts, measured: Sequence[str] = ()) -> None:
    """Write the manifest of a folder that is to be published; `measured` as in `publish`."""
    paths = (path for path in sorted(draft.rglob("*")) if path.is_file())
    names = [path.relative_to(draft).as_posix() for path in paths]
    others = (MANIFEST, *measured)
    kept = [name for name in names if name.split("/")[0] != TEMPORARY and name not in others]
    made_by = {**versions(), **manifest.get("made_by", {})}
    content = {**manifest, "format": FORMAT, "files": _entries(draft, kept), "made_by": made_by}
    files.write_json(draft / MANIFEST, files.sealed(content))


def _entries(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    paths = [folder / name for name in names]
    entries = [{"bytes": p.stat().st_size, "sha256": files.sha256_of(p)} for p in paths]
    return dict(zip(names, entries, strict=True))


def withdraw(path: Path, name: str) -> None:
    """Delete a file of the published folder at `path`, first from its manifest."""
    manifest = open_directory(path).manifest
    if name in manifest.files:
        content = manifest.model_dump(exclude_unset=True, exclude={SEAL})
        del content["files"][name]
        files.write_whole(path / MANIFEST, files.canonical_json(files.sealed(content)))
    files.delete(path / name)
    files.sync(path)


def open_directory(path: Path, kind: str | None = None) -> Artifact:
    """Open what was published as `path`, of this `kind`; raise DamagedError if it is not whole."""
    if _regular_bytes(path, MANIFEST) is None:
        what = f"{path} is not a finished artifact: it has no {MANIFEST}"
        raise DamagedError(what, "pass the path of a finished one")
    versioned = None
    with suppress(DamagedError):  # `read_sealed` reports more
        versioned = files.read_record(path / MANIFEST, _Versioned)
    if versioned is not None and versioned.format != FORMAT:
        raise _other_format(path, versioned)
    manifest = files.read_sealed(path / MANIFEST, Manifest)
    called = kind or manifest.kind, path.name if kind or manifest.fingerprint else None
    if path.match(NAMES) and (manifest.kind, manifest.fingerprint) != called:
        reason = f"{path} was published as {manifest.kind} {manifest.fingerprint}"
        raise DamagedError(reason, "move it back, or move it to a folder with another kind of name")
    for name, expected in manifest.files.items():
        if difference := _difference(path, name, expected, hashed=False):
            raise damaged(difference, path)
    return Artifact(path, manifest)


def check_output(option: str, place: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output that would replace an input of the command, or change an artifact.

    Args:
        option: What the user calls the output in the command, such as "--html".
        place: The file or folder that the command is to write.
        inputs: Files that the command reads, and folders whose files it reads.

    Raises:
        UserError: `place` is an input, lies in a folder of inputs, or in an artifact.
    """
    path = _real_path(place)
    for source in inputs:
        if place.is_file() and _is_same_file(place, source):
            raise UserError(
                f"{option} {place} would replace {source}, which this command reads; write to "
                "another file"
            )
        if _real_path(source) in path.parents:
            raise UserError(
                f"{option} {place} would be in {source}, whose files this command reads; write to "
                "another folder"
            )
    for folder in (path, *path.parents):
        if _is_artifact(folder):
            raise UserError(
                f"{option} {place} would change {folder}, which nmtkit published; write to "
                "another folder"
            )


def _real_path(path: Path) -> Path:
    """Do what `Path.resolve` does, but raise nothing for a loop of links."""
    return Path(os.path.realpath(path))


def _is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one file; not if one is missing or may not be read."""
    with suppress(OSError):
        return path.samefile(other)
    return False


class _AnyManifest(BaseModel):
    """What tells a manifest of nmtkit, of any version, from a file of that name by others."""

    format: int
    kind: str
    files: dict[str, Any]
    made_by: dict[str, str]


def _is_artifact(folder: Path) -> bool:
    if _regular_bytes(folder, MANIFEST) is None:
        return False
    try:
        files.read_record(folder / MANIFEST, _AnyManifest)
    except DamagedError:
        return False
    return True


def _other_format(path: Path, manifest: _Versioned) -> DamagedError:
    version = manifest.made_by.get("nmtkit", "of an unknown version")
    reason = (
        f"{path} has format {shown(manifest.format)}, but this version of nmtkit reads {FORMAT}"
    )
    if manifest.format > FORMAT:
        return NewerVersionError(reason, f"update nmtkit (it was written by {shown(version)})")
    return DamagedError(reason, f"rebuild it with nmtkit {__version__}")


def _difference(path: Path, name: str, expected: File, *, hashed: bool = True) -> str | None:
    """Return what is wrong with a file, which is read only if it is `hashed`."""
    file = path / name
    if (size := _regular_bytes(path, name)) is None:
        seen = "is a link or not a regular file" if os.path.lexists(file) else "is missing"
    elif size != expected.bytes:
        seen = f"has {size:,} bytes"
    elif not hashed or (sha256 := files.sha256_of(file)) == expected.sha256:
        return None
    else:
        published = f"published as {expected.sha256[:12]}..."
        return f"{file} was altered (sha256 {sha256[:12]}..., {published})"
    return f"{file} {seen} but was published with {expected.bytes:,} bytes"


def _regular_bytes(folder: Path, name: str) -> int | None:
    """Return the size of a regular file, if no part of its name is a link inside `folder`."""
    _, *inside = accumulate(name.split("/"), "{}/{}".format, initial=str(folder))
    with suppress(OSError):
        status = os.lstat(inside.pop())
        return status.st_size if S_ISREG(status.st_mode) and not any(map(islink, inside)) else None
    return None


def verify(artifact: Artifact, *names: str) -> Artifact:
    """Check the hashes of the named files of `artifact`, or of all its files, and return it."""
    for name in names or artifact.manifest.files:
        artifact.file(name)
        if difference := _difference(artifact.path, name, artifact.manifest.files[name]):
            raise damaged(difference, artifact.path)
    return artifact


class _Measured(BaseModel):
    measured: dict[str, File]  # the files that have measurements too


def verify_measured(path: Path, name: str) -> None:
    """Check the hash of a file in the folder at `path` that has measurements.

    Raises:
        DamagedError: It is not as it was published.
    """
    measured = files.read_sealed(path / MEASUREMENTS, _Measured).measured
    if name not in measured:
        raise damaged(f"{path} was published without {name}", path)
    if difference := _difference(path, name, measured[name]):
        raise damaged(difference, path)


def differences(path: Path) -> Iterator[str]:
    """Yield a sentence for each file of a folder that is not as it was published."""
    try:
        manifest = files.read_sealed(path / MANIFEST, Manifest)
    except DamagedError as error:
        yield error.reason
        return
    entries = dict(manifest.files)
    if manifest.fingerprint is not None:  # a stage published it
        expected = fingerprint_of(manifest.kind, manifest.depends_on)
        if manifest.fingerprint != expected:
            yield f"{path / MANIFEST} has another fingerprint than {expected}, what it depends on"
        places = [place for place in (path, path.resolve()) if place.match(NAMES)]
        published = (manifest.kind, manifest.fingerprint)
        if places and published not in (place.parts[-2:] for place in places):
            yield f"{path} was published as {manifest.kind} {manifest.fingerprint}"
        try:
            entries |= files.read_sealed(path / MEASUREMENTS, _Measured).measured
            yield from (
                f"{path / each} was not published with it" for each in strays(path, entries)
            )
        except DamagedError as error:
            yield error.reason
    for name, entry in entries.items():
        if difference := _difference(path, name, entry):
            yield difference


def strays(path: Path, names: Iterable[str]) -> list[str]:
    """Return the files in a folder besides those that a stage published."""
    found = (each for each in path.rglob("*") if each.is_symlink() or not each.is_dir())
    known = {*names, MANIFEST, MEASUREMENTS}
    return sorted({each.relative_to(path).as_posix() for each in found} - known)
