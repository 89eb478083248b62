"""A journal of finished parts, kept next to their files, so that a killed run can be resumed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nmtkit.corpus.ids import reopen
from nmtkit.store import files
from nmtkit.store.code_version import versions
from nmtkit.store.manifests import File
from nmtkit.store.records import (
    DamagedError,
    Record,
    canonical_json,
    damaged,
    read_sealed,
    sealed,
)
from nmtkit.utils import progress

JOURNAL = "journal.json"
MAX_BYTES = 2**28  # of a journal
BLOCK_BYTES = 2**20


class _Content(Record):
    """The contents of journal.json."""

    made_by: dict[str, str]  # versions and commit, and other inputs of the files
    parts: dict[str, Any]
    files: dict[str, File]  # their committed beginnings, by name in the draft
    sha256: str  # of the other keys


@dataclass
class _Beginning:
    """The committed beginning of a file, and its hash."""

    n_bytes: int = 0
    sha256: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def extend(self, path: Path, n_bytes: int) -> None:
        """Hash the file further, up to its first `n_bytes` or its end."""
        with path.open("rb") as file:
            file.seek(self.n_bytes)
            while block := file.read(min(n_bytes - self.n_bytes, BLOCK_BYTES)):
                self.sha256.update(block)
                self.n_bytes += len(block)

    def entry(self) -> dict[str, Any]:
        """Return the size and the hash, as the journal lists them."""
        return {"bytes": self.n_bytes, "sha256": self.sha256.hexdigest()}


class Journal:
    """The committed parts of a draft, and the files that contain them."""

    def __init__(self, folder: Path, draft: Path, made_by: Mapping[str, str] = {}) -> None:
        """Open the journal of a draft, or empty the draft if its journal cannot be used.

        Args:
            folder: The folder of the journal: `draft`, or one inside it.
            draft: The folder of the files.
            made_by: Further inputs of the files. The journal of a run that had others, or of
                another version or commit of nmtkit, is not used.
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
                progress.warn(f"{error.reason}; starting anew")
                self._files.clear()
            self._path.unlink()  # first: no journal may list files that are gone
        files.delete(draft)
        folder.mkdir(parents=True)

    def __getitem__(self, part: str) -> Any:
        """Return the committed state of a part, or None."""
        return self._parts.get(part)

    def reopen(self, path: Path) -> IO[bytes]:
        """Open a file to write after its committed beginning, and cut off the rest."""
        return reopen(path, self._file(path).n_bytes)

    def commit(self, part: str, state: object, *paths: Path) -> None:
        """Record the state of a part, once the files that it wrote or extended are on disk.

        Args:
            part: Its name.
            state: Its state, ready for JSON.
            *paths: Its files.
        """
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
        return self._files.setdefault(path.relative_to(self._draft).as_posix(), _Beginning())

    def _resume(self) -> None:
        """Read the journal, and compare the files with it.

        Raises:
            DamagedError: They differ, or the journal is of another version or other inputs.
        """
        content = read_sealed(self._path, _Content, MAX_BYTES)
        if content.made_by != self._made_by:
            raise damaged(f"{self._draft} was begun from something else", self._draft)
        for name, committed in content.files.items():
            path = self._draft / name
            if not path.is_file():
                raise damaged(f"{path} is missing", self._draft)
            beginning = _Beginning()
            beginning.extend(path, committed.bytes)
            if beginning.entry() != committed.model_dump():
                raise damaged(f"{path} was changed since it was written", self._draft)
            self._files[name] = beginning
        self._parts = content.parts
