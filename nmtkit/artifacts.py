"""Artifacts: directories that are published whole, found by fingerprint and never overwritten.

An artifact is written as a draft next to its final place, under a lock against a second writer.
To publish it, hash and sync every file, write the manifest last, and rename the draft. A directory
with its final name is therefore complete, even after a kill or on a full disk. A manifest contains
no time, host or path, so that equal inputs give equal bytes. Measurements (wall time, speed,
memory, host) are in files of their own, such as `measurements.json`, which are not part of that
promise. Both JSON files contain a hash of themselves, so that no byte can change unnoticed.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from nmtkit import __version__
from nmtkit.errors import UserError, shown

MANIFEST = "manifest.json"
MEASUREMENTS = "measurements.json"
SEAL = "sha256"  # the key of the hash of a file's other keys
TEMPORARY = "temporary"  # a folder of a draft that is not published
NAMES = 16 * "[0-9a-f]"  # of artifacts: their fingerprints
# What else may be beside an artifact, and ends in one of these.
DRAFT = ".partial"  # not finished
ASIDE = ".damaged"  # what a stage moved out of a draft
DRAFT_MARK = ".nmtkit-draft"  # in what surrounds the draft of a folder that a user names
DISCARDED = ".discarded"  # not deleted completely
FORMAT = 2  # of manifests; any other is refused
# Maximum size of a record: enough for the manifest of a training that keeps 3,000 checkpoints.
MAX_RECORD_BYTES = 2**21
FREEING = "gc.lock"  # in the folder of artifacts; shared by all that make one
BLOCK_BYTES = 2**18  # hashed at a time, as hashlib.file_digest does


class DamagedError(UserError):
    """A published folder cannot be used."""

    def __init__(self, reason: str, way_out: str) -> None:
        """Take why, and what to do; a caller that knows better what to do uses `reason` alone."""
        super().__init__(f"{reason}; {way_out}")
        self.reason, self.way_out = reason, way_out

    def __reduce__(self) -> tuple[type["DamagedError"], tuple[str, str]]:
        """Let another process raise it again."""
        return DamagedError, (self.reason, self.way_out)


class BusyError(UserError):
    """Another process is writing the artifact."""


class Record(BaseModel):
    """The contents of a JSON file: exactly these keys, with values of exactly these types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


AnyRecord = TypeVar("AnyRecord", bound=BaseModel)


def _inside(name: str) -> str:
    """Check that `name` stays inside its folder and is safe to print."""
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise ValueError("it does not name a file inside the folder")
    return name


class File(Record):
    """The entry of a file in a manifest."""

    bytes: NonNegativeInt
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Versioned(BaseModel):
    """The part that manifests of all versions have in common."""

    format: int


class Manifest(Record):
    """The kind of an artifact, what it was made from, and its files."""

    format: int
    files: dict[Annotated[str, Field(max_length=255), AfterValidator(_inside)], File]
    kind: str
    fingerprint: str | None = None  # the hash of everything it depends on; checkpoints have none
    depends_on: dict[str, Any] = {}
    made_by: dict[str, str]  # versions and, of a training, its precision or precisions
    # Of each stage up to this one, the hashes of the rooms of nmtkit that its result depends on.
    code: dict[str, dict[str, str]] = {}  # older versions wrote none
    sha256: str | None = None  # of all this; older versions wrote none


@dataclass(frozen=True)
class Artifact:
    """A published directory and its manifest."""

    path: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Return the path of a file that the manifest lists; no other file is read.

        Raises:
            DamagedError: the manifest does not list it.
        """
        if name not in self.manifest.files:
            raise _damaged(f"{self.path} was published without {name}", self.path)
        return self.path / name


def fingerprint(kind: str, depends_on: Mapping[str, Any]) -> str:
    """Return the 16 hex digits that name the artifact of this `kind` made from `depends_on`."""
    content = canonical_json({"format": FORMAT, "kind": kind, "depends_on": depends_on})
    return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]


def canonical_json(value: object) -> str:
    """Return JSON that is the same bytes for equal values."""
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def write_json(path: Path, value: object) -> None:
    """Write `value` to `path` as canonical JSON."""
    path.write_text(canonical_json(value), encoding="utf-8", newline="\n")


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` to `path` as canonical JSON, with a hash of itself."""
    write_json(path, {**content, SEAL: _seal(content)})


def _seal(content: Mapping[str, Any]) -> str:
    # A damaged file may have half of a surrogate pair.
    text = canonical_json(content).encode("utf-8", errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()


def check_seal(path: Path) -> bool:
    """Check that no byte of a file that `write_sealed` wrote has changed.

    Returns:
        Whether the file contains a hash of itself; that of an older version does not.

    Raises:
        DamagedError: it has changed.
    """
    text = read_utf8(path, MAX_RECORD_BYTES)
    content = read_json(path)
    seal = content.pop(SEAL, None) if isinstance(content, dict) else ""
    if seal is None:
        return False
    if seal != _seal(content) or text != canonical_json({**content, SEAL: seal}):
        raise _damaged(f"{path} was altered (it does not match its own sha256)", path.parent)
    return True


def read_json(path: Path) -> Any:
    """Read what `write_json` wrote.

    Raises:
        DamagedError: the file is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{path} is damaged ({error})", path.parent) from None


def read_record(path: Path, kind: type[AnyRecord]) -> AnyRecord:
    """Read a small JSON file that contains a `kind`.

    Raises:
        DamagedError: the file is missing, too large, or contains something else.
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
        raise _damaged(f"{path} cannot be read ({error.strerror})", path.parent) from None
    if len(content) > n_bytes:
        raise _damaged(f"{path} has more than {n_bytes:,} bytes", path.parent)
    return content


def sha256_of(path: Path, n_bytes: int = sys.maxsize) -> str:
    """Return the SHA-256 of a file, or of its first `n_bytes`."""
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
        """Return the path that the artifact has, or will have."""
        return self.folder / kind / fingerprint

    def draft_place(self, kind: str, fingerprint: str) -> Path:
        """Return the path of the artifact's draft."""
        return self.place(kind, fingerprint).with_suffix(DRAFT)

    def find(self, kind: str, fingerprint: str) -> Artifact | None:
        """Return the artifact if it was published.

        Raises:
            DamagedError: one of its files is missing or has another size.
        """
        path = self.place(kind, fingerprint)
        return open_directory(path) if path.is_dir() else None

    def all(self, kind: str) -> Iterator[Artifact]:
        """Yield the artifacts of this kind that are whole."""
        for manifest in sorted((self.folder / kind).glob(f"{NAMES}/{MANIFEST}")):
            with suppress(DamagedError):
                yield open_directory(manifest.parent)

    def drafts(self, kind: str) -> Iterator[tuple[str, Path]]:
        """Yield the fingerprint and the path of each draft of this kind."""
        for path in sorted((self.folder / kind).glob(f"*{DRAFT}")):
            yield path.name.removesuffix(DRAFT), path

    @contextmanager
    def lock(self, kind: str, fingerprint: str) -> Iterator[None]:
        """Keep other processes from writing the artifact, while its draft is read.

        Raises:
            BusyError: another process is writing it.
        """
        place = self.place(kind, fingerprint)
        with _lock(place.with_suffix(".lock"), f"{kind} {fingerprint}"):
            yield

    @contextmanager
    def claim(self, kind: str, fingerprint: str) -> Iterator[None]:
        """Keep other processes from claiming the same, which need not be an artifact.

        Raises:
            BusyError: another process has claimed it.
        """
        place = self.place(kind, fingerprint)
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place.with_suffix(".lock"), f"{kind} {fingerprint}", note={}):
            yield

    def folders(self, kind: str) -> list[Path]:
        """Return the folders of artifacts of this kind, whole or not."""
        found = [
            path
            for suffix in ("", DRAFT, ASIDE, DISCARDED)
            for path in (self.folder / kind).glob(NAMES + suffix)
        ]
        return sorted(path for path in found if path.is_dir())

    def holder(self, kind: str, fingerprint: str) -> str | None:
        """Return the process that is making the artifact, if there is one."""
        return _holder(self.place(kind, fingerprint).with_suffix(".lock"))

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Keep every process from making an artifact.

        Raises:
            UserError: one is being made.
        """
        for lock in sorted(self.folder.glob(f"*/{NAMES}.lock")):
            if holder := _holder(lock):
                raise UserError(
                    f"nothing is freed while {holder} makes {lock.parent.name} {lock.stem} (lock "
                    f"{lock}); wait for it to end, or stop it"
                )
        with (self.folder / FREEING).open("a+", encoding="utf-8") as file:
            if not _try_lock(file, fcntl.LOCK_EX):
                raise UserError(
                    f"nothing is freed while another process works in {self.folder}; wait for it "
                    "to end, or stop it"
                )
            yield

    def free(self, path: Path) -> None:
        """Delete a folder of an artifact; after a kill, what is left of it has another name.

        Of a folder that is a symbolic link, only the link is deleted.
        """
        discarded = _discarded(path)
        if path != discarded:
            _delete(discarded)
            path.rename(discarded)
            sync(path.parent)
        _delete(discarded)

    @contextmanager
    def draft(
        self, kind: str, fingerprint: str, *, resume: bool = False, note: Mapping[str, Any] = {}
    ) -> Iterator[Path]:
        """Provide a folder to write the artifact to, locked against a second writer.

        Args:
            resume: keep the files of a writer that was killed.
            note: what the lock file says of the writer, for as long as there is no manifest.

        Raises:
            BusyError: another process is writing the artifact.
        """
        place = self.place(kind, fingerprint)
        place.parent.mkdir(parents=True, exist_ok=True)
        with (
            _not_freeing(self.folder),
            _lock(place.with_suffix(".lock"), f"{kind} {fingerprint}", note),
        ):
            partial = self.draft_place(kind, fingerprint)
            _delete(_discarded(partial))
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
        code: Mapping[str, Mapping[str, str]] = {},
        made_by: Mapping[str, str] = {},
        measured: Sequence[str] = (),
    ) -> Artifact:
        """Publish the draft of the artifact.

        Args:
            code: what the manifest records of the code of nmtkit.
            made_by: what the manifest records beside the versions; no part of the fingerprint.
            measured: names of files with measurements; like `measurements.json`, which contains
                their hashes, they are not in the manifest.
        """
        place = self.place(kind, fingerprint)
        partial = self.draft_place(kind, fingerprint)
        facts = {
            "host": socket.gethostname(),
            "published": datetime.now(UTC).isoformat(timespec="seconds"),
            "measured": {name: _entry(partial / name) for name in measured},
        }
        write_sealed(partial / MEASUREMENTS, {**measurements, **facts})
        manifest = {
            "kind": kind,
            "fingerprint": fingerprint,
            "depends_on": depends_on,
            "code": code,
        }
        publish_directory(partial, place, manifest, made_by, [MEASUREMENTS, *measured])
        return open_directory(place)


def publish_directory(
    draft: Path,
    place: Path,
    manifest: Mapping[str, Any],
    made_by: Mapping[str, str] = {},
    measured: Sequence[str] = (),
) -> None:
    """Publish the folder `draft` as `place`, which must not exist; the rest as in `publish`."""
    files = {}
    for path in sorted(draft.rglob("*")):
        name = path.relative_to(draft).as_posix()
        if name.split("/")[0] == TEMPORARY:
            continue
        if path.is_file():
            if name not in (MANIFEST, *measured):
                files[name] = _entry(path)
            sync(path)
    made_by = {**versions(), **made_by}
    content = {**manifest, "format": FORMAT, "files": files, "made_by": made_by}
    write_sealed(draft / MANIFEST, content)
    sync(draft / MANIFEST)
    for folder in [*(path for path in draft.rglob("*") if path.is_dir()), draft]:
        sync(folder)
    if (draft / TEMPORARY).exists():
        # Renamed first: a kill during the deletion must not leave a journal whose files are gone.
        discarded = _discarded(draft)
        (draft / TEMPORARY).rename(discarded)
        sync(draft)
        shutil.rmtree(discarded)
    draft.rename(place)
    sync(place.parent)


def withdraw(path: Path, name: str) -> None:
    """Delete a file of the published folder at `path`, first from its manifest.

    A kill leaves the folder whole, with the file or without it.

    Raises:
        DamagedError: as `open_directory`.
    """
    manifest = open_directory(path).manifest
    if name in manifest.files:
        content = manifest.model_dump(exclude_unset=True, exclude={SEAL})
        del content["files"][name]
        new = path / f"{MANIFEST}.new"
        write_sealed(new, content)
        replace_file(new, path / MANIFEST)
    (path / name).unlink(missing_ok=True)
    sync(path)


def _entry(path: Path) -> dict[str, Any]:
    """Return what is recorded of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _delete(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _discarded(draft: Path) -> Path:
    """Return where the temporary files of a draft are moved to be deleted."""
    return draft.with_suffix(DISCARDED)


def open_directory(path: Path) -> Artifact:
    """Open the published folder at `path`, and check the sizes of its files.

    The folder may be a symbolic link; its files may not.

    Raises:
        DamagedError: the folder was never published, is damaged, or has another format.
    """
    if not _is_regular(path, MANIFEST):
        raise DamagedError(
            f"{path} is not a finished artifact: it has no {MANIFEST}",
            "choose another one, or make it again",
        )
    if (found := read_record(path / MANIFEST, _Versioned).format) != FORMAT:
        raise DamagedError(
            f"{path} has format {shown(found)}, but this version of nmtkit reads {FORMAT}",
            "make it again",
        )
    manifest = read_record(path / MANIFEST, Manifest)
    check_seal(path / MANIFEST)
    for name, expected in manifest.files.items():
        if difference := _difference_in_size(path, name, expected):
            raise _damaged(difference, path)
    return Artifact(path, manifest)


def _difference_in_size(path: Path, name: str, expected: File) -> str | None:
    """Return what is wrong with a file, without reading it."""
    file = path / name
    if not os.path.lexists(file):
        seen = "is missing"
    elif not _is_regular(path, name):
        seen = "is a link or not a regular file"
    elif (size := file.stat().st_size) != expected.bytes:
        seen = f"has {size:,} bytes"
    else:
        return None
    return f"{file} {seen} but was published with {expected.bytes:,} bytes"


def _difference(path: Path, name: str, expected: File) -> str | None:
    """Return what is wrong with a file."""
    if difference := _difference_in_size(path, name, expected):
        return difference
    if (seen := sha256_of(path / name, expected.bytes)) == expected.sha256:
        return None
    return (
        f"{path / name} was altered (sha256 {seen[:12]}..., published as {expected.sha256[:12]}...)"
    )


def _is_regular(folder: Path, name: str) -> bool:
    """Return whether `name` is a regular file, and no part of it is a link inside `folder`."""
    place = Path(os.path.realpath(folder)) / name
    return place.is_file() and os.path.realpath(place) == str(place)


def verify(artifact: Artifact, *names: str) -> Artifact:
    """Check the hashes of the named files of `artifact`, or of all its files, and return it.

    Raises:
        DamagedError: a file is not the one that was published.
    """
    for name in names or artifact.manifest.files:
        artifact.file(name)
        if difference := _difference(artifact.path, name, artifact.manifest.files[name]):
            raise _damaged(difference, artifact.path)
    return artifact


class _Measured(BaseModel):
    """The part of the measurements that says which other files have some."""

    measured: dict[str, File] | None = None


def differences(path: Path) -> Iterator[str]:
    """Yield a sentence for each difference between a folder and what was published as `path`.

    Every byte of every file is looked at. An older version recorded no hash of measurements.
    """
    try:
        manifest = read_record(path / MANIFEST, Manifest)
        is_sealed = check_seal(path / MANIFEST)
    except DamagedError as error:
        yield error.reason
        return
    expected = fingerprint(manifest.kind, manifest.depends_on)
    if manifest.fingerprint not in (None, expected):
        yield f"{path / MANIFEST} has another fingerprint than {expected}, what it depends on"
    files = dict(manifest.files)
    if is_sealed:
        try:
            if not check_seal(path / MEASUREMENTS):
                yield f"{path / MEASUREMENTS} has lost its sha256"
            files |= read_record(path / MEASUREMENTS, _Measured).measured or {}
        except DamagedError as error:
            yield error.reason
            is_sealed = False  # what else was measured is not known
    for name, entry in files.items():
        if difference := _difference(path, name, entry):
            yield difference
    if is_sealed:
        known = {*files, MANIFEST, MEASUREMENTS}
        for file in sorted(path.rglob("*")):
            if not file.is_dir() and file.relative_to(path).as_posix() not in known:
                yield f"{file} was not published with the others"


def _damaged(reason: str, path: Path) -> DamagedError:
    return DamagedError(reason, f"delete {path} and run again, or restore it from a copy")


def first_problem(error: ValidationError) -> str:
    """Return the first thing that pydantic reports, and where it is."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = "".join(f"[{shown(each)}]" for each in first["loc"])
    if where and first["type"] != "missing":
        where += f" = {shown(first['input'])}"
    return f"{where}: {first['msg']}" if where else first["msg"]


@cache
def versions() -> dict[str, str]:
    """Return the versions of nmtkit, Python and the libraries."""
    libraries = ("torch", "numpy", "sacremoses", "sentencepiece", "sacrebleu", "safetensors")
    return {
        "python": platform.python_version(),
        "nmtkit": __version__,
        **{name: metadata.version(name) for name in libraries},
    }


@contextmanager
def _lock(path: Path, what: str, note: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Lock `path`; the system releases the lock when the process ends, however it ends.

    The first line of the file names the process that writes or wrote the artifact, the second one
    is its `note`; without a note, the file stays as it is.
    """
    with path.open("a+", encoding="utf-8") as file:
        if not _try_lock(file, fcntl.LOCK_EX):
            raise BusyError(
                f"{what} is being made by {_first_line(file)} (lock {path}); wait for it to end, "
                "or stop it"
            )
        if note is not None:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n{json.dumps(note)}\n")
            file.flush()
        yield


@contextmanager
def _not_freeing(folder: Path) -> Iterator[None]:
    """Keep `Store.freeing` from beginning."""
    with (folder / FREEING).open("a+", encoding="utf-8") as file:
        if not _try_lock(file, fcntl.LOCK_SH):
            raise UserError(
                f"space is being freed in {folder}; wait for it to end, then run the same command "
                "again"
            )
        yield


def _holder(lock: Path) -> str | None:
    """Return the process that holds the lock, if there is one."""
    try:
        with lock.open(encoding="utf-8") as file:
            return None if _try_lock(file, fcntl.LOCK_SH) else _first_line(file)
    except FileNotFoundError:
        return None


def _try_lock(file: TextIO, how: int) -> bool:
    """Lock a file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _first_line(file: TextIO) -> str:
    file.seek(0)
    return file.readline().strip() or "another process"


def check_room(folder: Path, n_bytes: int, what: str) -> None:
    """Check that `n_bytes` can be written to `folder`, before hours of work depend on it.

    Args:
        what: what needs them; the subject of the message.

    Raises:
        UserError: fewer bytes are free.
    """
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise UserError(
            f"{what} needs {n_bytes:,} bytes in {folder}, where {free:,} are free; free some "
            "space, or choose another --runs-dir"
        )


@contextmanager
def draft_of_file(place: Path) -> Iterator[Path]:
    """Provide a path to write, which becomes the file `place` at the end of the `with` block.

    If the block raises, the draft stays, if anything is in it. A link is followed; a device or a
    pipe, such as /dev/null, is written directly.

    Raises:
        BusyError: Another process is writing the file.
        UserError: The file is one that this process has open, such as its standard output.
    """
    if place.exists() and not place.is_file():
        yield place
        return
    if place.exists() and str(place).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(f"{place} is a file that is open already, and would be replaced; name it")
    place = Path(os.path.realpath(place))
    draft = place.with_name(f"{place.name}.partial")
    with draft.open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"another process is writing {place}; wait for it, or name another file"
            ) from None
        try:
            yield draft
        except BaseException:
            if draft.exists() and not draft.stat().st_size:
                draft.unlink()
            raise
        replace_file(draft, place)


@contextmanager
def draft_of_folder(place: Path) -> Iterator[Path]:
    """Provide a new folder to write, which the `with` block moves to `place`.

    It lies in a folder that a mark tells from one of the user's. The mark is made first and deleted
    last, so that a draft is known, and replaced, whenever its writer was killed.

    Raises:
        BusyError: Another process is writing the folder.
        UserError: `place` exists, or something else is where its draft is to be.
    """
    if os.path.lexists(place):
        raise UserError(f"{place} is there already; name another folder")
    around = place.with_name(f"{place.name}{DRAFT}")
    mark, draft = around / DRAFT_MARK, around / "draft"
    if os.path.lexists(around) and not (around.is_dir() and (mark.exists() or _is_empty(around))):
        raise UserError(
            f"{around}, where the draft of {place} is to be, is not nmtkit's; move it away, or "
            "name another folder"
        )
    around.mkdir(parents=True, exist_ok=True)
    with mark.open("a", encoding="utf-8") as held:
        if not _try_lock(held, fcntl.LOCK_EX):
            raise BusyError(
                f"another process is writing {place}; wait for it, or name another folder"
            )
        try:
            _delete(draft)
            draft.mkdir()
            yield draft
        finally:
            _delete(draft)
            mark.unlink()
            with suppress(OSError):  # something else was put there
                around.rmdir()


def _is_empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None


def share_file(file: Path, place: Path) -> None:
    """Give a published file a second name, or copy it if the file system has no hard links."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def replace_file(new: Path, place: Path) -> None:
    """Move the file `new` to `place` atomically and durably, even if the power fails."""
    sync(new)
    new.replace(place)
    sync(place.parent)


def move_folder(new: Path, place: Path) -> None:
    """Move the folder `new` to `place`, which must not exist, atomically and durably."""
    for path in [*new.rglob("*"), new]:
        sync(path)
    new.rename(place)
    sync(place.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
