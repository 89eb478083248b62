"""The note of a training: its inputs, precision and code, kept in the draft for the manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from nmtkit.store.code_version import own_code
from nmtkit.store.files import write_whole
from nmtkit.store.manifests import MANIFEST, TEMPORARY, Manifest
from nmtkit.store.records import Record, canonical_json, read_sealed, sealed

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # precision and code of steps whose note is lost


class Note(Record):
    """Everything that a training depends on, and the precision and code that computed it.

    Several precisions or commits, if they changed in between, are joined by "+".
    """

    depends_on: dict[str, Any]
    precision: str = ""
    code: dict[str, str] = Field(default={})  # version and commit, by `CODE_KEYS`
    inputs: dict[str, str] = Field(default={})  # as in the manifest
    sha256: str = ""  # of the other keys, in the file

    def continued(self, step: int, precision: str, code: Mapping[str, str]) -> "Note":
        """Return the note after a run has resumed.

        Args:
            step: The first step of the run. Step 1 replaces all earlier ones.
            precision: Data type of activations in the run.
            code: Version and commit of nmtkit in the run.
        """
        if step == 1:  # no step of an earlier run is left
            return self.model_copy(update={"precision": precision, "code": dict(code)})
        joined = {}
        for key, value in code.items():
            joined[key] = _joined(self.code.get(key, UNKNOWN), value)
        precision = _joined(self.precision, precision)
        return self.model_copy(update={"precision": precision, "code": joined})


def _joined(earlier: str, value: str) -> str:
    """Append `value` to the values that are joined by "+" in `earlier`, unless it is among them."""
    values = [part for part in earlier.split("+") if part]
    if value not in values:
        values.append(value)
    return "+".join(values)


def write_note(draft: Path, note: Note) -> None:
    """Write the note of a draft; a kill leaves the old one or the new one."""
    path = draft / TEMPORARY / NOTE
    # The folder of temporary files is not published.
    path.parent.mkdir(exist_ok=True)
    write_whole(path, canonical_json(sealed(note.model_dump(exclude={"sha256"}))))


def read_note(training: Path) -> Note | None:
    """Return the note of a training, published or not, or None if there is none.

    Raises:
        DamagedError: The note or the manifest does not match its hash.
    """
    path = training / TEMPORARY / NOTE
    if path.is_file():
        return read_sealed(path, Note)
    if not (training / MANIFEST).is_file():
        return None
    # Only the manifest is verified: a draft that was killed while it was published has one, too.
    manifest = read_sealed(training / MANIFEST, Manifest)
    return Note(
        depends_on=manifest.depends_on,
        precision=manifest.made_by.get("precision", ""),
        code=own_code(manifest.made_by),
        inputs=manifest.inputs,
    )
