"""What a manifest says of how a training was computed, kept as a note in its draft until then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from nmtkit.store.code_version import own_code
from nmtkit.store.files import write_whole
from nmtkit.store.manifests import MANIFEST, TEMPORARY, Manifest
from nmtkit.store.records import Record, canonical_json, read_sealed, sealed

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # precision and code of steps whose note is gone


class Note(Record):
    """What a training depends on, and how its steps were computed."""

    depends_on: dict[str, Any]
    precision: str = ""  # if it changed in between: several, joined by "+"
    code: dict[str, str] = Field(default={})  # likewise, the version and commit: `CODE_KEYS`
    inputs: dict[str, str] = Field(default={})  # as in the manifest
    sha256: str = ""  # of the other keys, in its file

    def continued(self, step: int, precision: str, code: Mapping[str, str]) -> "Note":
        """Return the note once this precision and code compute the steps from `step` on."""
        if step == 1:  # no earlier step is left
            return self.model_copy(update={"precision": precision, "code": dict(code)})
        joined = {key: _joined(self.code.get(key, UNKNOWN), value) for key, value in code.items()}
        precision = _joined(self.precision, precision)
        return self.model_copy(update={"precision": precision, "code": joined})


def _joined(before: str, now: str) -> str:
    return "+".join(dict.fromkeys([*filter(None, before.split("+")), now]))


def write_note(draft: Path, note: Note) -> None:
    place = draft / TEMPORARY / NOTE
    place.parent.mkdir(exist_ok=True)
    write_whole(place, canonical_json(sealed(note.model_dump(exclude={"sha256"}))))


def read_note(training: Path) -> Note | None:
    """Return the note of a training, published or not, if there is one."""
    if (training / TEMPORARY / NOTE).is_file():
        return read_sealed(training / TEMPORARY / NOTE, Note)
    if not (training / MANIFEST).is_file():
        return None
    # Of a draft that was killed while it was published, a file may be written again already.
    manifest = read_sealed(training / MANIFEST, Manifest)
    return Note(
        depends_on=manifest.depends_on,
        precision=manifest.made_by.get("precision", ""),
        code=own_code(manifest.made_by),
        inputs=manifest.inputs,
    )
