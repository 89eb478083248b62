"""How far a stage has come, recorded beside its files, so that a killed run can be resumed."""

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nmtkit import progress
from nmtkit.files import canonical_json, replace_file, sync
from nmtkit.store import TEMPORARY, versions

JOURNAL = "journal.json"
BLOCK_BYTES = 2**20


class _Span(BaseModel):
    """Some bytes of a file, behind those of the span before."""

    model_config = ConfigDict(strict=True, extra="forbid")

    n_bytes: Annotated[int, Field(ge=0)]
    sha256: str


class _Content(BaseModel):
    """What the journal's file holds; its hash stands in the line below."""

    model_config = ConfigDict(strict=True, extra="forbid")

    made_by: dict[str, str]  # versions, and the code of nmtkit
    parts: dict[str, Any]
    files: dict[str, list[_Span]]  # by their names in the draft: what was committed of each


class Journal:
    """The committed parts of a draft, and the files that they filled.

    What is resumed is what was committed, byte for byte: a draft that another version of the code
    began, or that disagrees with its journal, is emptied.
    """

    def __init__(self, draft: Path, code: Mapping[str, str]) -> None:
        """Open the journal of `draft`, which this `code` is to finish."""
        self.folder = draft / TEMPORARY
        self._draft = draft
        self._path = self.folder / JOURNAL
        made_by = {**versions(), **code}
        self._content = _Content(made_by=made_by, parts={}, files={})
        if self._path.is_file():
            try:
                self._content = _read(draft, self._path, made_by)
                return
            except _RefusedError as refused:
                progress.say(f"{refused}; starting {draft.name} anew")
            self._path.unlink()  # first: no journal may tell of files that are gone
        shutil.rmtree(draft)
        self.folder.mkdir(parents=True)

    def __getitem__(self, part: str) -> Any:
        """What was committed of a part, or None."""
        return self._content.parts.get(part)

    def n_bytes(self, path: Path) -> int:
        """How much of a file was committed; what follows is of a run that was killed."""
        return sum(span.n_bytes for span in self._spans(path))

    def commit(self, part: str, state: object, *files: Path) -> None:
        """Record how far a part is, once `files`, which it wrote or appended to, are on disk."""
        for path in files:
            sync(path)
            done = self.n_bytes(path)
            with path.open("rb") as file:
                file.seek(done)
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                self._spans(path).append(_Span(n_bytes=file.tell() - done, sha256=sha256))
        self._content.parts[part] = state
        text = canonical_json(self._content.model_dump())
        sha256 = hashlib.sha256(text.encode("utf-8")).hexdigest()
        new = self._path.with_suffix(".new")
        new.write_text(f"{text}{sha256}\n", encoding="utf-8", newline="\n")
        replace_file(new, self._path)

    def _spans(self, path: Path) -> list[_Span]:
        return self._content.files.setdefault(path.relative_to(self._draft).as_posix(), [])


class _RefusedError(Exception):
    """Why a draft is not resumed."""


def _read(draft: Path, path: Path, made_by: dict[str, str]) -> _Content:
    """What the journal at `path` tells of `draft`, all of which is as it was committed."""
    text, _, sha256 = path.read_bytes().removesuffix(b"\n").rpartition(b"\n")
    content = text + b"\n"
    if hashlib.sha256(content).hexdigest().encode() != sha256:
        raise _RefusedError(f"{path} is damaged")
    try:
        told = _Content.model_validate_json(content)
    except ValidationError:
        raise _RefusedError(f"{path} is not in the form of this version of nmtkit") from None
    if told.made_by != made_by:
        raise _RefusedError(f"{path} was begun by another version of nmtkit or of a library")
    _check(draft, told)
    return told


def _check(draft: Path, content: _Content) -> None:
    """Compare every committed byte with what the journal says of it."""
    for name, spans in content.files.items():
        path = draft / name
        if not path.is_file():
            raise _RefusedError(f"{path} is missing")
        with path.open("rb") as file:
            for span in spans:
                begin = file.tell()
                if _hash(file, span.n_bytes) != span.sha256:
                    where = f"bytes {begin:,} to {begin + span.n_bytes:,}"
                    raise _RefusedError(f"{path} is damaged ({where})")


def _hash(file: IO[bytes], n_bytes: int) -> str:
    """Hash the next `n_bytes`, or what there is of them."""
    sha256 = hashlib.sha256()
    while block := file.read(min(n_bytes, BLOCK_BYTES)):
        sha256.update(block)
        n_bytes -= len(block)
    return sha256.hexdigest()
