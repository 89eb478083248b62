"""Verification of published files by their hashes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from nmtkit.store.artifacts import NAMES, Artifact
from nmtkit.store.manifests import (
    MANIFEST,
    MEASUREMENTS,
    Manifest,
    Measurements,
    compute_fingerprint,
    file_difference,
)
from nmtkit.store.records import DamagedError, damaged, read_sealed


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
