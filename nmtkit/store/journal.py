"""A journal of the finished parts of a draft. A killed run resumes with it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nmtkit.store import files, records
from nmtkit.store.code_version import versions
from nmtkit.store.manifests import File
from nmtkit.store.records import DamagedError, Record, canonical_json, damaged, sealed
from nmtkit.utils import progress

JOURNAL = "journal.json"
MAX_BYTES = 2**28  # of a journal
BLOCK_BYTES = 2**20


class _Content(Record):
    """The contents of the journal's file."""

    made_by: dict[str, str]  # versions and commit, and the origin of the files
    parts: dict[str, Any]
    files: dict[str, File]  # the committed beginnings of files, by their names in the draft
    sha256: str  # of the other keys


@dataclass
class _Beginning:
    """The committed beginning of a file, and its hash so far."""

    n_bytes: int = 0
    sha256: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def extend(self, path: Path, n_bytes: int) -> None:
        """Hash the file further, up to its first `n_bytes` or up to its end."""
        with path.open("rb") as file:
            file.seek(self.n_bytes)
            while block := file.read(min(n_bytes - self.n_bytes, BLOCK_BYTES)):
                self.sha256.update(block)
                self.n_bytes += len(block)

    def entry(self) -> dict[str, Any]:
        """Return the entry of the journal."""
        return {"bytes": self.n_bytes, "sha256": self.sha256.hexdigest()}


class Journal:
    """The committed parts of a draft and the files that they filled.

    If they cannot be used, the draft is emptied.
    """

    def __init__(self, folder: Path, draft: Path, made_by: Mapping[str, str] = {}) -> None:
        """Open the journal of a draft, or start one.

        Args:
            folder: The folder of the journal: `draft`, or a folder in it.
            made_by: The origin of the draft. Parts of another origin, or of another version or
                commit of nmtkit, are not used.
        """
        self.folder = folder
        self._draft = draft
        self._path = folder / JOURNAL
        self._made_by = {**versions(), **made_by}
        self._parts: dict[str, Any] = {}
        self._files: dict[str, _Beginning] = {}
        if self._path.is_file():
            try:
                self._resume()
                return
            except DamagedError as error:
                progress.warn(f"{error.reason}; starting over")
                self._files.clear()
            # The journal is deleted first: it must never name files that are gone.
            self._path.unlink()
        files.delete(draft)
        folder.mkdir(parents=True)

    def __getitem__(self, part: str) -> Any:
        """Return the committed state of a part, or None."""
        return self._parts.get(part)

    def reopen(self, path: Path) -> IO[bytes]:
        """Open a file for writing after its committed bytes; a killed run may have written more."""
        return files.reopen(path, self._file(path).n_bytes)

    def commit(self, part: str, state: object, *paths: Path) -> None:
        """Record the state of a part.

        Args:
            state: Its state, ready for JSON.
            paths: The files that the part has written or appended to. They are synced first.
        """
        # The journal must never name bytes that a loss of power could take back.
        for path in paths:
            files.sync(path)
            self._file(path).extend(path, path.stat().st_size)
        self._parts[part] = state
        content = {
            "made_by": self._made_by,
            "parts": self._parts,
            "files": {name: file.entry() for name, file in self._files.items()},
        }
        files.write_whole(self._path, canonical_json(sealed(content)))

    def _file(self, path: Path) -> _Beginning:
        """Return the committed beginning of a file, empty at first."""
        return self._files.setdefault(path.relative_to(self._draft).as_posix(), _Beginning())

    def _resume(self) -> None:
        """Read the journal, and verify that the files of the draft begin as it records.

        Raises:
            DamagedError: They do not, or the draft has another origin.
        """
        content = records.read_sealed(self._path, _Content, MAX_BYTES)
        if content.made_by != self._made_by:
            raise damaged(f"{self._draft} was built from other inputs", self._draft)
        for name, committed in content.files.items():
            path = self._draft / name
            if not path.is_file():
                raise damaged(f"{path} is missing", self._draft)
            # A killed run may have written more than it committed; `reopen` cuts that off.
            file = _Beginning()
            file.extend(path, committed.bytes)
            if file.entry() != committed.model_dump():
                raise damaged(f"{path} was changed since it was written", self._draft)
            self._files[name] = file
        self._parts = content.parts
