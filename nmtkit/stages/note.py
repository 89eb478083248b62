"""What a manifest says of how a training was computed, kept as a note in its draft until then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from nmtkit.files import Record, canonical_json, read_sealed, sealed, write_whole
from nmtkit.store import MANIFEST, TEMPORARY, Manifest

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # of steps whose note is gone: precision and code


class Note(Record):
    """What a training depends on, and how its steps were computed."""

    depends_on: dict[str, Any]
    precision: str = ""  # if it changed in between: several, joined by "+"
    code: dict[str, str] = Field(default={})  # likewise, the hash of each room
    sha256: str = ""  # of the other keys, in its file

    def continued(self, step: int, precision: str, code: Mapping[str, str]) -> "Note":
        """Return the note once this precision and code compute the steps from `step` on."""
        before = self if step > 1 else Note(depends_on=self.depends_on)
        joined = {room: _joined(before.code.get(room, ""), code[room]) for room in code}
        precision = _joined(before.precision, precision)
        return Note(depends_on=self.depends_on, precision=precision, code=joined)


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
        code=manifest.code.get("train", {}),
    )
