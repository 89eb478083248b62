"""Artifacts: complete or absent, found by fingerprint, never overwritten."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from system.kills import BeforeOperation, attempt

from nmtkit.store.artifacts import Artifact, Store, differences, open_directory, verify
from nmtkit.store.files import sync
from nmtkit.store.manifests import MANIFEST, TEMPORARY, Manifest, compute_fingerprint
from nmtkit.store.records import DamagedError, canonical_json, read_json, read_sealed
from nmtkit.utils.errors import UserError

KIND = "prepare"
FINGERPRINT = "0123456789abcdef"
DEPENDS_ON = {"corpus": {"tgt_lang": "de", "src_lang": "en"}, "inputs": ["a", "b"]}
FILES = {"vocabulary.tsv": b"the\t3\n", "checkpoints/step-7/model": bytes(range(256)), "empty": b""}


def write_files(draft: Path) -> None:
    for name, content in FILES.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def publish(store: Store, seconds: float = 1.5) -> Artifact:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        return store.publish(
            KIND, FINGERPRINT, depends_on=DEPENDS_ON, measurements={"seconds": seconds}
        )


def bytes_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


# Publishing


def test_published_artifact_is_found(store: Store) -> None:
    assert store.find(KIND, FINGERPRINT) is None
    published = publish(store)
    found = store.find(KIND, FINGERPRINT)
    assert found == published
    assert verify(found) is found
    assert found.manifest.fingerprint == FINGERPRINT
    assert found.manifest.depends_on == DEPENDS_ON
    assert found.manifest.files.keys() == FILES.keys()
    assert found.path == store.folder / KIND / FINGERPRINT
    contents = bytes_of(found.path)
    assert {name: contents[name] for name in FILES} == FILES
    assert read_json(found.path / "measurements.json")["seconds"] == 1.5
    assert store.find(KIND, "f" * 16) is None
    assert store.find("train", FINGERPRINT) is None


def test_draft_is_empty_unless_resumed(store: Store) -> None:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
    with store.draft(KIND, FINGERPRINT, resume=True) as draft:
        assert bytes_of(draft) == FILES
    with store.draft(KIND, FINGERPRINT) as draft:
        assert bytes_of(draft) == {}


@contextmanager
def full_disk_at(monkeypatch: pytest.MonkeyPatch, call: int) -> Iterator[None]:
    """Let the fsync number `call` raise that the disk is full."""
    calls = iter(range(1, 1000))
    sync = os.fsync

    def full(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        yield


def test_full_disk_publishes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in range(1, 100):
        with full_disk_at(monkeypatch, call), pytest.raises(OSError, match="No space left"):
            publish(store)
        found = store.find(KIND, FINGERPRINT)
        if found is not None:  # only the last sync is after the rename
            verify(found)
            break
        assert not (store.folder / KIND / FINGERPRINT).exists()
    # The manifest; files, measurements and manifest; two folders and the draft; the parent folder.
    assert call == 1 + (len(FILES) + 2) + (2 + 1) + 1


def test_artifact_is_not_overwritten(store: Store) -> None:
    before = bytes_of(publish(store).path)
    with pytest.raises(OSError, match="not empty"):
        publish(store, seconds=9.0)
    found = store.find(KIND, FINGERPRINT)
    assert found is not None
    assert bytes_of(found.path) == before


def test_equal_inputs_give_equal_bytes(tmp_path: Path) -> None:
    first = bytes_of(publish(Store(tmp_path / "one"), seconds=1.5).path)
    second = bytes_of(publish(Store(tmp_path / "two"), seconds=2.5).path)
    assert first.pop("measurements.json") != second.pop("measurements.json")
    assert first == second
    assert str(tmp_path).encode() not in first["manifest.json"]


# Damaged


def test_find_checks_sizes(store: Store) -> None:
    path = publish(store).path / "checkpoints/step-7/model"
    path.write_bytes(bytes(255))
    with pytest.raises(UserError, match=r"step-7/model has 255 bytes .*\b256\b"):
        store.find(KIND, FINGERPRINT)


@pytest.mark.parametrize(
    ("kind", "fingerprint"), [(KIND, "fedcba9876543210"), ("train", FINGERPRINT)]
)
def test_renamed_copy_is_refused(kind: str, fingerprint: str, store: Store) -> None:
    copied = store.place(kind, fingerprint)
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(publish(store).path, copied)
    message = rf"{copied} was published as {KIND} {FINGERPRINT}; (?!delete)"
    with pytest.raises(DamagedError, match=message):
        store.find(kind, fingerprint)
    assert fingerprint not in {artifact.path.name for artifact in store.all("train")}
    assert f"{copied} was published as" in " ".join(differences(copied))
    if (
        fingerprint != FINGERPRINT
    ):  # in a folder that is not named like an artifact, it may be opened
        with pytest.raises(DamagedError, match=message):
            open_directory(copied)


def file_manifest(name: str = "a", bytes: str = "1", sha256: str = f'"{64 * "0"}"') -> str:  # noqa: A002
    """A manifest with one file; the arguments are JSON."""
    return f'{{"format": 2, "files": {{"{name}": {{"bytes": {bytes}, "sha256": {sha256}}}}}}}'


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "not a finished artifact: it has no manifest.json"),
        ('{"format": 99}', "has format 99, but this version of nmtkit reads 2"),
        ('{"format": 2', "manifest.json is damaged"),
        ("[" * 100_000, "manifest.json is damaged"),
        ('{"format": 2}', r"damaged \(\['files'\]: Field required"),
        (file_manifest(bytes="-1"), r"damaged \(\['files'\]\['a'\]\['bytes'\] = \S+: Input"),
        (
            file_manifest(sha256='"../etc"'),
            r"damaged \(\['files'\]\['a'\]\['sha256'\] = \S+: String",
        ),
        (file_manifest(name="a\\nb"), r"damaged \(\['files'\]\['a\\nb'\]"),
    ],
)
def test_invalid_manifest_is_refused(manifest: str | None, message: str, store: Store) -> None:
    path = publish(store).path / "manifest.json"
    path.unlink()
    if manifest is not None:
        path.write_text(manifest, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=message) as caught:
        store.find(KIND, FINGERPRINT)
    assert "\n" not in str(caught.value)


# Fingerprints


def test_fingerprints_are_stable() -> None:
    """A change would rebuild all artifacts of all users. It needs another FORMAT."""
    text = (
        '{\n "depends_on": {\n  "a": [\n   1,\n   "ß"\n  ]\n },\n "format": 2,\n "kind": "k"\n}\n'
    )
    assert canonical_json({"kind": "k", "format": 2, "depends_on": {"a": [1, "ß"]}}) == text
    assert compute_fingerprint("k", {"a": [1, "ß"]}) == "ae644c95924fd960"  # sha256sum of text


def test_power_failure_keeps_journal(tmp_path: Path) -> None:
    """One of the two is in every draft, and identifies the code that wrote its files."""

    def publish_with_note(folder: Path) -> None:
        store = Store(folder)
        with store.draft(KIND, FINGERPRINT) as draft:
            (draft / TEMPORARY).mkdir()
            (draft / TEMPORARY / "note").write_bytes(b"note")
            for path in (draft / TEMPORARY / "note", draft / TEMPORARY, draft):
                sync(path)
            (draft / "model").write_bytes(b"weights")
            store.publish(KIND, FINGERPRINT, depends_on=DEPENDS_ON, measurements={})

    uninterrupted = tmp_path / "uninterrupted"
    uninterrupted.mkdir()
    n_seen = 0
    for number in range(1, attempt(publish_with_note, uninterrupted).operations + 1):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        kill_at = BeforeOperation(number, power_fails=True)
        assert attempt(publish_with_note, folder, "sorted", kill_at).killed
        draft = Store(folder).draft_place(KIND, FINGERPRINT)
        if (draft / MANIFEST).exists() and not (draft / TEMPORARY).exists():
            read_sealed(draft / MANIFEST, Manifest)
            n_seen += 1
    assert n_seen
