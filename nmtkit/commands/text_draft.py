"""The draft of a text that takes long to write, so that a stopped command can be resumed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from nmtkit import progress
from nmtkit.errors import UserError
from nmtkit.files import (
    Record,
    check_seal,
    draft_of_file,
    read_record,
    replace_file,
    sync,
    write_sealed,
)

BLOCK_BYTES = 2**20


class _State(Record):
    """How far a draft has come."""

    made_from: str
    n_lines: int
    n_bytes: int
    text_sha256: str
    sha256: str  # of the other keys


class TextDraft:
    """A text that is appended part by part, with a record beside it of what was appended."""

    def __init__(self, path: Path, file: BinaryIO, made_from: str) -> None:
        """Continue the text in `file`, which is open at `path`, or start it anew.

        Raises:
            UserError: Something else is there.
        """
        self.path, self._file, self._made_from = path, file, made_from
        self._record = path.with_name(f"{path.name}.json")
        self._sha256 = hashlib.sha256()
        self.n_lines = 0  # of the source, whose translations are in the text
        if file.seek(0, os.SEEK_END):
            if not self._record.exists():
                raise UserError(
                    f"{path} is in the way: it would be the draft of --output, and was not written "
                    "as one; move it, or name another --output"
                )
            try:
                self._resume()
            except _RefusedError as refused:
                progress.say(f"{path} {refused}; starting anew")
                self._sha256 = hashlib.sha256()
                file.seek(0)
        self._write_record()  # no draft is without one
        file.truncate()

    def append(self, text: str, n_lines: int) -> None:
        """Append the translations of the next `n_lines` lines; they are kept from here on."""
        encoded = text.encode("utf-8")
        self._file.write(encoded)
        self._file.flush()
        self._sha256.update(encoded)
        self.n_lines += n_lines
        sync(self.path)
        self._write_record()

    def forget(self) -> None:
        """Remove the record, once the text is complete and has its own name."""
        self._record.unlink()

    def _resume(self) -> None:
        try:
            check_seal(self._record)
            state = read_record(self._record, _State)
        except UserError as error:
            raise _RefusedError(f"cannot be resumed: {error}") from None
        if state.made_from != self._made_from:
            raise _RefusedError(
                "is of another text, model, engine or version, or has other options"
            )
        self._file.seek(0)
        n_left = state.n_bytes
        while block := self._file.read(min(n_left, BLOCK_BYTES)):
            self._sha256.update(block)
            n_left -= len(block)
        if self._sha256.hexdigest() != state.text_sha256:
            raise _RefusedError("was changed since it was written")
        self.n_lines = state.n_lines

    def _write_record(self) -> None:
        state = {
            "made_from": self._made_from,
            "n_lines": self.n_lines,
            "n_bytes": self._file.tell(),
            "text_sha256": self._sha256.hexdigest(),
        }
        new = self._record.with_name(f"{self._record.name}.new")
        write_sealed(new, state)
        replace_file(new, self._record)


class _RefusedError(Exception):
    """Why a draft is not resumed."""


class _Device:
    """A device or a pipe, which has no draft."""

    n_lines = 0

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self._file = path, file

    def append(self, text: str, n_lines: int) -> None:  # noqa: ARG002 - it keeps nothing
        self._file.write(text.encode("utf-8"))
        self._file.flush()


@contextmanager
def text_draft(place: Path, made_from: str) -> Iterator[TextDraft | _Device]:
    """Provide a draft, which becomes the file `place` at the end of the `with` block.

    If the block raises, or the process is killed, what was appended is kept and found again.

    Args:
        place: The file, or a device, which is written directly.
        made_from: What determines the text. A draft that was made from something else is started
            anew.

    Raises:
        UserError: The file can't be replaced, or something else has the name of the draft.
    """
    with draft_of_file(place) as path:
        if not path.is_file():
            with path.open("wb") as file:
                yield _Device(path, file)
            return
        with path.open("r+b") as file:
            draft = TextDraft(path, file, made_from)
            yield draft
    draft.forget()
