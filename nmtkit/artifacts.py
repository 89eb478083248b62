"""Artifacts: directories that are published whole, found by fingerprint and never overwritten.

An artifact is written in a draft beside its place, which holds a lock against a second writer.
Publishing it means: hash and sync every file, write the manifest last, rename the draft. So a
directory under its final name is whole, whatever was killed or filled up when; and a manifest holds
no time, host or path, so that equal inputs give equal bytes. What was measured (wall time, speed,
memory) stands beside it in `measurements.json`, outside that promise.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from nmtkit.errors import UserError, shown

MANIFEST = "manifest.json"
MEASUREMENTS = "measurements.json"
# metrics.jsonl holds seconds beside its losses.
UNHASHED = (MANIFEST, MEASUREMENTS, "metrics.jsonl")
TEMPORARY = "temporary"  # a folder of a draft that is gone before the artifact is seen
FORMAT = 1  # of manifests; another one is refused
# Of a record: the manifest of a training that keeps 3,000 checkpoints fits in.
MAX_RECORD_BYTES = 2**21
BLOCK_BYTES = 2**18  # hashed at a time, as hashlib.file_digest does


class DamagedError(UserError):
    """A published folder can't be used."""

    def __init__(self, reason: str, way_out: str) -> None:
        """Say why, and what to do; a caller with a better way out takes the reason alone."""
        super().__init__(f"{reason}; {way_out}")
        self.reason = reason


class Record(BaseModel):
    """What a JSON file holds: these keys and no others, their values of these types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


def _inside(name: str) -> str:
    """Check that `name` leads out of no folder, and may be shown on a terminal."""
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError("it does not name a file inside the folder")
    return name


class File(Record):
    """What a manifest says about a file."""

    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Versioned(BaseModel):
    """What the manifests of all versions have."""

    format: int


class Manifest(Record):
    """What an artifact is, what it was made from, and its files."""

    format: int
    files: dict[Annotated[str, Field(max_length=255), AfterValidator(_inside)], File]
    kind: str
    fingerprint: str | None = None  # the hash of all that it depends on; a checkpoint has none
    depends_on: dict[str, Any] = {}
    made_by: dict[str, str]


@dataclass(frozen=True)
class Artifact:
    """A published directory and its manifest."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Return the path of a file that the manifest lists: no other one is read.

        Raises:
            DamagedError: it lists no such file.
        """
        if name not in self.manifest.files:
            raise _damaged(f"{self.path} was published without {name}", self.path)
        return self.path / name


def fingerprint(kind: str, depends_on: Mapping[str, Any]) -> str:
    """The name of the artifact of this `kind` that follows from `depends_on`: 16 hex digits."""
    content = canonical_json({"format": FORMAT, "kind": kind, "depends_on": depends_on})
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def canonical_json(value: object) -> str:
    """The one way in which a value is written, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path`, canonically."""
    path.write_text(canonical_json(value), encoding="utf-8", newline="\n")


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote.

    Raises:
        DamagedError: the file is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{path} is damaged ({error})", path.parent) from None


def read_record(path: Path, kind: type[AnyRecord]) -> AnyRecord:
    """Read a small JSON file that holds a `kind`.

    Raises:
        DamagedError: the file is missing or too large, or holds something else.
    """
    try:
        return kind.model_validate_json(read_bytes(path, MAX_RECORD_BYTES))
    except ValidationError as error:
        raise _damaged(f"{path} is damaged ({first_problem(error)})", path.parent) from None


def read_utf8(path: Path, n_bytes: int) -> str:
    """Read a text of at most `n_bytes`.

    Raises:
        DamagedError: the file is missing, too large or not UTF-8.
    """
    try:
        return read_bytes(path, n_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{path} is not UTF-8 text (byte {error.start + 1:,})"
        raise _damaged(reason, path.parent) from None


def read_bytes(path: Path, n_bytes: int) -> bytes:
    """Read a file of at most `n_bytes`.

    Raises:
        DamagedError: the file is missing or too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(n_bytes + 1)
    except OSError as error:
        raise _damaged(f"{path} can't be read ({error.strerror})", path.parent) from None
    if len(content) > n_bytes:
        raise _damaged(f"{path} has more than {n_bytes:,} bytes", path.parent)
    return content


def sha256_of(path: Path, n_bytes: int = sys.maxsize) -> str:
    """The SHA-256 of a file, or of its first `n_bytes`."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(BLOCK_BYTES))
    with path.open("rb", buffering=0) as file:
        while n_read := file.readinto(buffer[:n_bytes]):
            digest.update(buffer[:n_read])
            n_bytes -= n_read
    return digest.hexdigest()


class Store:
    """The artifacts under one folder: `<folder>/<kind>/<fingerprint>/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, kind: str, fingerprint: str) -> Path:
        """Where that artifact is, or will be."""
        return self.folder / kind / fingerprint

    def draft_place(self, kind: str, fingerprint: str) -> Path:
        """Where that artifact is written before it is whole."""
        return self.place(kind, fingerprint).with_suffix(".partial")

    def find(self, kind: str, fingerprint: str) -> Artifact | None:
        """That artifact, if it was published.

        Raises:
            UserError: a file of it is missing or has another size.
        """
        path = self.place(kind, fingerprint)
        return open_directory(path) if path.is_dir() else None

    @contextmanager
    def draft(self, kind: str, fingerprint: str, *, resume: bool = False) -> Iterator[Path]:
        """A folder to write that artifact in, locked against a second writer.

        `resume` keeps what a killed writer left.

        Raises:
            UserError: another process is writing it.
        """
        place = self.place(kind, fingerprint)
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place.with_suffix(".lock"), f"{kind} {fingerprint}"):
            partial = self.draft_place(kind, fingerprint)
            if _discarded(partial).exists():
                shutil.rmtree(_discarded(partial))
            if partial.exists() and not resume:
                shutil.rmtree(partial)
            partial.mkdir(exist_ok=True)
            yield partial

    def publish(
        self,
        kind: str,
        fingerprint: str,
        *,
        depends_on: Mapping[str, Any],
        measurements: Mapping[str, Any],
    ) -> Artifact:
        """Give the draft of that artifact its place."""
        place = self.place(kind, fingerprint)
        partial = self.draft_place(kind, fingerprint)
        write_json(partial / MEASUREMENTS, {**measurements, "host": socket.gethostname()})
        publish_directory(
            partial, place, {"kind": kind, "fingerprint": fingerprint, "depends_on": depends_on}
        )
        return open_directory(place)


def publish_directory(draft: Path, place: Path, manifest: Mapping[str, Any]) -> None:
    """Turn the folder `draft` into the whole and synced folder `place`, which must not exist."""
    files = {}
    for path in sorted(draft.rglob("*")):
        name = path.relative_to(draft).as_posix()
        if name.split("/")[0] == TEMPORARY:
            continue
        if path.is_file():
            if name not in UNHASHED:
                files[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            sync(path)
    write_json(
        draft / MANIFEST, {**manifest, "format": FORMAT, "files": files, "made_by": versions()}
    )
    sync(draft / MANIFEST)
    for folder in [*(path for path in draft.rglob("*") if path.is_dir()), draft]:
        sync(folder)
    if (draft / TEMPORARY).exists():
        # Away in one step: a kill in the middle of deleting must not leave a journal that tells of
        # files which are gone.
        discarded = _discarded(draft)
        (draft / TEMPORARY).rename(discarded)
        sync(draft)
        shutil.rmtree(discarded)
    draft.rename(place)
    sync(place.parent)


def _discarded(draft: Path) -> Path:
    """Where the temporary files of a draft go to be deleted."""
    return draft.with_suffix(".discarded")


def open_directory(path: Path) -> Artifact:
    """Open the published folder at `path`, whose files have the sizes that its manifest gives.

    The folder may be reached through a link, its files may not.

    Raises:
        DamagedError: it was never published, is damaged, or has another format.
    """
    if not _is_regular(path, MANIFEST):
        raise DamagedError(
            f"{path} is no finished artifact: it has no {MANIFEST}", "name another or make it again"
        )
    if (found := read_record(path / MANIFEST, _Versioned).format) != FORMAT:
        raise DamagedError(
            f"{path} has format {shown(found)}, and this nmtkit reads {FORMAT}", "make it again"
        )
    manifest = read_record(path / MANIFEST, Manifest)
    for name, expected in manifest.files.items():
        file = path / name
        if not os.path.lexists(file):
            seen = "is missing"
        elif not _is_regular(path, name):
            seen = "is a link or no regular file"
        elif (size := file.stat().st_size) != expected.bytes:
            seen = f"has {size:,} bytes"
        else:
            continue
        raise _damaged(f"{file} {seen} where {expected.bytes:,} were written", path)
    return Artifact(path, manifest)


def _is_regular(folder: Path, name: str) -> bool:
    """Whether `name` is a regular file of `folder` that is reached through no link inside it."""
    place = Path(os.path.realpath(folder)) / name
    return place.is_file() and os.path.realpath(place) == str(place)


def verify(artifact: Artifact, *names: str) -> Artifact:
    """Hash the named files of `artifact`, all of them if none is named, and return it.

    Raises:
        DamagedError: a file is not what was published.
    """
    for name in names or artifact.manifest.files:
        path, expected = artifact.file(name), artifact.manifest.files[name]
        if (seen := sha256_of(path, expected.bytes)) != expected.sha256:
            raise _damaged(
                f"{path} was altered (sha256 {seen[:12]}..., published as "
                f"{expected.sha256[:12]}...)",
                artifact.path,
            )
    return artifact


def _damaged(reason: str, path: Path) -> DamagedError:
    return DamagedError(reason, f"delete {path} and run again, or restore it from a copy")


def first_problem(error: ValidationError) -> str:
    """The first thing that pydantic objects to, and where it stands."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{shown(each)}]" for each in first["loc"])
    if where and first["type"] != "missing":
        where += f" = {shown(first['input'])}"
    return f"{where}: {first['msg']}" if where else first["msg"]


@cache
def versions() -> dict[str, str]:
    """What makes artifacts here: nmtkit, the hash of its code, Python and the libraries."""
    package = Path(__file__).parent
    code = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    libraries = (
        "nmtkit",
        "torch",
        "numpy",
        "sacremoses",
        "sentencepiece",
        "sacrebleu",
        "safetensors",
    )
    return {
        "code": code.hexdigest()[:16],
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in libraries},
    }


@contextmanager
def _lock(path: Path, what: str) -> Iterator[None]:
    """Hold `path` locked; the system lets go of it when the process ends, however it ends."""
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"{what} is being made by {holder} (lock {path}); wait until it ends, or stop it"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def check_room(folder: Path, n_bytes: int, what: str) -> None:
    """Make sure that `n_bytes` more can be written to `folder`, before hours of work go into them.

    Args:
        what: what needs them, the subject of the message.

    Raises:
        UserError: fewer are free.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes:,} bytes in {folder}, where {free:,} are free; free some "
            "space, or choose another --runs-dir"
        )


def replace_file(new: Path, place: Path) -> None:
    """Give a written file its place, at once and for good, even if the power fails."""
    sync(new)
    new.replace(place)
    sync(place.parent)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
