"""Artifacts: directories that are published atomically and found by their fingerprint.

An artifact is written as a draft next to its final path, under a lock, and renamed once every file
is hashed and synced: a directory with its final name is complete. It is never overwritten. `verify`
compares its files with their published hashes.
"""

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nmtkit.store import files
from nmtkit.store.files import DRAFT
from nmtkit.store.links import check_own
from nmtkit.store.locks import find_holder, locked
from nmtkit.store.manifests import (
    MANIFEST,
    MEASUREMENTS,
    N_FINGERPRINT_DIGITS,
    TEMPORARY,
    Facts,
    Manifest,
    Measurements,
    compute_fingerprint,
    file_difference,
    file_entries,
    read_manifest,
    write_manifest,
)
from nmtkit.store.records import (
    SEAL,
    DamagedError,
    canonical_json,
    damaged,
    read_sealed,
    sealed,
    write_json,
)
from nmtkit.utils.text import quote

NAMES = N_FINGERPRINT_DIGITS * "[0-9a-f]"  # the names of artifacts, as a glob pattern
# Endings of the other folders next to an artifact, with its fingerprint in front.
ASIDE = ".damaged"  # moved out of a draft by a stage
DISCARDED = ".discarded"  # not deleted completely
FREEING = "gc.lock"  # in the folder of artifacts; shared by all processes that build one


@dataclass(frozen=True)
class Artifact:
    """A published directory."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Return the path of a file.

        Raises:
            DamagedError: The manifest does not list it.
        """
        if name not in self.manifest.files:
            # Another version of nmtkit may publish other files.
            version = self.manifest.made_by.get("nmtkit", "")
            raise DamagedError(
                f"{self.path} was published without {name}",
                f"read it with the version of nmtkit that wrote it ({quote(version)})",
            )
        return self.path / name


@dataclass(frozen=True)
class Store:
    """The artifacts under one folder: `<folder>/<kind>/<fingerprint>/`."""

    folder: Path

    def place(self, kind: str, fingerprint: str) -> Path:
        """Return the path that an artifact has or will have."""
        return self.folder / kind / fingerprint

    def draft_place(self, kind: str, fingerprint: str) -> Path:
        """Return the path that the draft of an artifact has or will have."""
        return self.place(kind, fingerprint).with_suffix(DRAFT)

    def find(self, kind: str, fingerprint: str) -> Artifact | None:
        """Return an artifact, or None if it was not published.

        Raises:
            DamagedError: It is not whole.
        """
        path = self.place(kind, fingerprint)
        return open_directory(path, kind) if path.is_dir() else None

    def all(self, kind: str) -> Iterator[Artifact]:
        """Yield the artifacts of a kind that are whole."""
        for path in sorted((self.folder / kind).glob(NAMES)):
            with suppress(DamagedError):
                artifact = self.find(kind, path.name)
                if artifact is not None:
                    yield artifact

    def folders(self, kind: str) -> list[Path]:
        """Return the folders of artifacts of a kind, whole or not."""
        paths = []
        for ending in ("", DRAFT, ASIDE, DISCARDED):
            for path in (self.folder / kind).glob(NAMES + ending):
                if path.is_dir():
                    paths.append(path)
        return sorted(paths)

    def lock(
        self, kind: str, fingerprint: str, note: Facts | None = None, wait_s: float = 0.0
    ) -> AbstractContextManager[None]:
        """Keep other processes from building the same artifact.

        Args:
            kind: The stage that publishes the artifact.
            note: JSON about this process, for the lock file.
            wait_s: Maximum time to wait while another process builds the same artifact.
        """
        place = self.place(kind, fingerprint)
        place.parent.mkdir(parents=True, exist_ok=True)
        work = f"{kind} {fingerprint} is being built"
        return locked(place.with_suffix(".lock"), work, note=note, wait_s=wait_s)

    def holder(self, kind: str, fingerprint: str) -> str | None:
        """Return the process that holds the lock of an artifact, or None."""
        return find_holder(self.place(kind, fingerprint).with_suffix(".lock"))

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Keep all processes from building artifacts.

        Raises:
            BusyError: One is being built.
        """
        # The locks of artifacts are tried only to name the one that is being built.
        for path in sorted(self.folder.glob(f"*/{NAMES}.lock")):
            artifact = f"{path.parent.name} {path.stem}"
            with locked(path, f"cannot free space: {artifact} is being built"):
                pass
        with locked(self.folder / FREEING, f"cannot free space: {self.folder} is in use"):
            yield

    def free(self, path: Path) -> None:
        """Delete the folder of an artifact. After a kill, the rest of it has another name."""
        files.discard(path, path.with_suffix(DISCARDED))

    @contextmanager
    def writing(
        self, kind: str, fingerprint: str, note: Facts | None = None, wait_s: float = 0.0
    ) -> Iterator[None]:
        """Hold the locks without which an artifact is neither written nor deleted.

        Args:
            kind: The stage that publishes the artifact.
            note: JSON about this process, for the lock file.
            wait_s: Maximum time to wait while another process builds the same artifact.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            locked(self.folder / FREEING, f"space in {self.folder} is being freed", shared=True),
            self.lock(kind, fingerprint, note, wait_s),
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
        wait_s: float = 0.0,
    ) -> Iterator[Path]:
        """Provide a locked folder to write an artifact to.

        Args:
            kind: The stage that publishes the artifact.
            resume: Keep the files of an earlier draft.
            note: JSON about this process, for the lock file.
            wait_s: Maximum time to wait while another process builds the same artifact.

        Raises:
            UserError: There is a link, a pipe or a device in the draft.
        """
        with self.writing(kind, fingerprint, note or {}, wait_s):
            draft = self.draft_place(kind, fingerprint)
            # A kill may have interrupted an earlier deletion.
            files.delete(draft.with_suffix(DISCARDED))
            if not resume:
                files.delete(draft)
            # Others may write to the folder of artifacts, or the user may have it from others.
            check_own(draft)
            check_own(draft.with_suffix(ASIDE))
            draft.mkdir(exist_ok=True)
            try:
                yield draft
            finally:
                # An empty draft would be listed as an incomplete artifact.
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
        """Publish the draft of an artifact.

        Args:
            kind: The stage that publishes it.
            depends_on: Everything that its contents depend on, for the manifest.
            measurements: Times and the like, for measurements.json.
            inputs: Hashes of the artifacts that were read.
            made_by: Versions of the code, in addition to those of nmtkit and libraries.
            downloads: Addresses and hashes of the archives that were read.
            measured: Files with measurements. The manifest does not list them.
        """
        draft = self.draft_place(kind, fingerprint)
        place = self.place(kind, fingerprint)
        # Values that differ from run to run are kept apart, so that equal inputs give an equal
        # manifest.
        content = {
            **measurements,
            "host": socket.gethostname(),
            "published": datetime.now(UTC).isoformat(timespec="seconds"),
            "measured": file_entries(draft, measured),
        }
        write_json(draft / MEASUREMENTS, sealed(content))
        manifest = {
            "kind": kind,
            "fingerprint": fingerprint,
            "depends_on": depends_on,
            "inputs": inputs,
            "made_by": made_by,
            "downloads": downloads,
        }
        write_manifest(draft, manifest, [MEASUREMENTS, *measured])
        # Otherwise a loss of power could leave neither the manifest nor the temporary files.
        files.sync(draft / MANIFEST)
        # The folder is renamed before it is deleted: a kill must not leave a journal whose files
        # are gone.
        files.discard(draft / TEMPORARY, draft.with_suffix(DISCARDED))
        files.move(draft, place)
        return open_directory(place)


def open_directory(path: Path, kind: str | None = None) -> Artifact:
    """Open a published directory.

    Args:
        kind: The stage that published it, if that is known.

    Raises:
        DamagedError: It is not whole, or was published as another artifact.
    """
    manifest = read_manifest(path)
    if path.match(NAMES):
        # A checkpoint or a copy may have any name, unless its name is a fingerprint.
        is_other_kind = kind is not None and manifest.kind != kind
        has_fingerprint = kind is not None or manifest.fingerprint is not None
        if is_other_kind or (has_fingerprint and manifest.fingerprint != path.name):
            raise DamagedError(
                f"{path} was published as {manifest.kind} {manifest.fingerprint}",
                "move it back, or move it to a folder with another kind of name",
            )
    # Hashing all files would take minutes; `verify` does that for those that are read.
    for name, expected in manifest.files.items():
        difference = file_difference(path, name, expected, check_hash=False)
        if difference:
            raise damaged(difference, path)
    return Artifact(path, manifest)


def publish_directory(draft: Path, place: Path, manifest: Facts) -> None:
    """Publish a folder that is not in a `Store`.

    Args:
        place: Its new path. It must not exist.
        manifest: The values of its manifest, except for the format, the files and the hash.
    """
    write_manifest(draft, manifest)
    files.move(draft, place)


def withdraw(path: Path, name: str) -> None:
    """Delete a file of a published folder, first from its manifest."""
    # In this order, a kill leaves at most a file that no manifest lists.
    manifest = open_directory(path).manifest
    if name in manifest.files:
        content = manifest.model_dump(exclude_unset=True, exclude={SEAL})
        del content["files"][name]
        files.write_whole(path / MANIFEST, canonical_json(sealed(content)))
    files.delete(path / name)
    files.sync(path)


# Verification by hashes


def verify(artifact: Artifact, *names: str) -> Artifact:
    """Check the hashes of the named files of an artifact, or of all its files, and return it.

    Raises:
        DamagedError: A file is not as it was published.
    """
    for name in names or artifact.manifest.files:
        # This raises if the manifest does not list the file.
        artifact.file(name)
        difference = file_difference(artifact.path, name, artifact.manifest.files[name])
        if difference:
            raise damaged(difference, artifact.path)
    return artifact


def verify_measured(path: Path, name: str) -> None:
    """Check the hash of a file that contains measurements.

    Args:
        path: The folder of the artifact.

    Raises:
        DamagedError: It is not as it was published.
    """
    measured = read_sealed(path / MEASUREMENTS, Measurements).measured
    if name not in measured:
        raise damaged(f"{path} was published without {name}", path)
    difference = file_difference(path, name, measured[name])
    if difference:
        raise damaged(difference, path)


def differences(path: Path) -> Iterator[str]:
    """Yield a sentence per file of a folder that is not as it was published."""
    try:
        manifest = read_sealed(path / MANIFEST, Manifest)
    except DamagedError as error:
        yield error.reason
        return
    entries = dict(manifest.files)
    if manifest.fingerprint is not None:  # a stage published it
        yield from _name_differences(path, manifest)
        try:
            entries |= read_sealed(path / MEASUREMENTS, Measurements).measured
            for name in unpublished_files(path, entries):
                yield f"{path / name} was not published with it"
        except DamagedError as error:
            yield error.reason
    for name, entry in entries.items():
        difference = file_difference(path, name, entry)
        if difference:
            yield difference


def _name_differences(path: Path, manifest: Manifest) -> Iterator[str]:
    """Yield a sentence if a folder or its manifest has another fingerprint than its inputs."""
    expected = compute_fingerprint(manifest.kind, manifest.depends_on)
    if manifest.fingerprint != expected:
        yield (
            f"{path / MANIFEST} has another fingerprint than {expected}, the hash of everything it "
            "depends on"
        )
    # A path whose last part is a fingerprint must be .../KIND/FINGERPRINT; a link to it may have
    # another name.
    places = [place for place in (path, path.resolve()) if place.match(NAMES)]
    published = (manifest.kind, manifest.fingerprint)
    if places and all(place.parts[-2:] != published for place in places):
        yield f"{path} was published as {manifest.kind} {manifest.fingerprint}"


def unpublished_files(path: Path, names: Iterable[str]) -> list[str]:
    """Return the files in the folder of an artifact that were not published.

    Args:
        names: The published files, except for the manifest and the measurements.
    """
    known = {*names, MANIFEST, MEASUREMENTS}
    unpublished = []
    for file in path.rglob("*"):
        name = file.relative_to(path).as_posix()
        # nmtkit publishes no links, not even to folders.
        is_file = file.is_symlink() or not file.is_dir()
        if is_file and name not in known:
            unpublished.append(name)
    return sorted(unpublished)
