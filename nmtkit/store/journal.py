"""A journal of finished parts, kept beside their files, so that a killed run can be resumed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nmtkit.corpus.ids import reopen
from nmtkit.store import files
from nmtkit.store.artifacts import File
from nmtkit.store.code_version import versions
from nmtkit.store.files import DamagedError, Record, damaged
from nmtkit.utils import progress

JOURNAL = "journal.json"
MAX_BYTES = 2**28  # of a journal
BLOCK_BYTES = 2**20


class _Content(Record):
    made_by: dict[str, str]  # versions and commit, and what else the files are built from
    parts: dict[str, Any]
    files: dict[str, File]  # what was committed of each, by its name in the draft
    sha256: str  # of the other keys


@dataclass
class _Beginning:
    n_bytes: int = 0
    sha256: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def extend(self, path: Path, n_bytes: int) -> None:
        """Read on up to the first `n_bytes`, or what there is of them."""
        with path.open("rb") as file:
            file.seek(self.n_bytes)
            while block := file.read(min(n_bytes - self.n_bytes, BLOCK_BYTES)):
                self.sha256.update(block)
                self.n_bytes += len(block)

    def entry(self) -> dict[str, Any]:
        return {"bytes": self.n_bytes, "sha256": self.sha256.hexdigest()}


class Journal:
    """The committed parts of a draft, and the files that they filled, or else it is emptied."""

    def __init__(self, folder: Path, draft: Path, made_by: Mapping[str, str] = {}) -> None:
        """Open the journal in `folder`, which is `draft` or lies in it.

        Its parts are used only by the same version and commit, from the same `made_by`.
        """
        self.folder, self._draft, self._path = folder, draft, folder / JOURNAL
        self._made_by = {**versions(), **made_by}
        self._parts: dict[str, Any] = {}
        self._files: dict[str, _Beginning] = {}
        if self._path.is_file():
            try:
                self._resume()
                return
            except DamagedError as refused:
                progress.warn(f"{refused.reason}; starting anew")
                self._files.clear()
            self._path.unlink()  # first: no journal may tell of files that are gone
        files.delete(draft)
        folder.mkdir(parents=True)

    def __getitem__(self, part: str) -> Any:
        return self._parts.get(part)

    def reopen(self, path: Path) -> IO[bytes]:
        """Open a file to write after what was committed; what follows is of a killed run."""
        return reopen(path, self._file(path).n_bytes)

    def commit(self, part: str, state: object, *paths: Path) -> None:
        """Record how far a part is, once `paths`, which it wrote or appended to, are on disk."""
        for path in paths:
            files.sync(path)
            self._file(path).extend(path, path.stat().st_size)
        self._parts[part] = state
        content = {
            "made_by": self._made_by,
            "parts": self._parts,
            "files": {name: file.entry() for name, file in self._files.items()},
        }
        files.write_whole(self._path, files.canonical_json(files.sealed(content)))

    def _file(self, path: Path) -> _Beginning:
        return self._files.setdefault(path.relative_to(self._draft).as_posix(), _Beginning())

    def _resume(self) -> None:
        """Take over what the journal tells of the draft; raise DamagedError if that is not so."""
        told = files.read_sealed(self._path, _Content, MAX_BYTES)
        if told.made_by != self._made_by:
            raise damaged(f"{self._draft} was begun from something else", self._draft)
        for name, committed in told.files.items():
            path, file = self._draft / name, _Beginning()
            if not path.is_file():
                raise damaged(f"{path} is missing", self._draft)
            file.extend(path, committed.bytes)
            if file.entry() != committed.model_dump():
                raise damaged(f"{path} was changed since it was written", self._draft)
            self._files[name] = file
        self._parts = told.parts
