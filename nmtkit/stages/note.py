"""What a manifest says of how a training was computed, kept as a note in its draft until then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from nmtkit.files import Record, canonical_json, read_record, read_sealed, write_whole
from nmtkit.store import MANIFEST, TEMPORARY, Manifest

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # in place of a precision or a hash: an older version of nmtkit noted none


class Note(Record):
    """What a training depends on, and how its steps were computed."""

    depends_on: dict[str, Any]
    precision: str = UNKNOWN  # such as "float32", or "float32, bfloat16 from step 101"
    # The hash of each room; several, joined by "+", where it changed.
    code: dict[str, str] = Field(default_factory=dict)

    def continued(self, step: int, precision: str, code: Mapping[str, str]) -> "Note":
        """Return the note once this precision and code compute the steps from `step` on.

        What an earlier run did from there on is not kept, so its precision is not stated.
        """
        if step == 1:
            return self.model_copy(update={"precision": precision, "code": {**code}})
        parts = self.precision.split(", ")
        kept = [part for part in parts if int(part.partition(" from step ")[2] or 1) < step]
        if kept[-1].partition(" ")[0] != precision:
            kept.append(f"{precision} from step {step}")
        made = {room: self.code.get(room, UNKNOWN).split("+") for room in code}
        joined = {room: "+".join(dict.fromkeys([*made[room], code[room]])) for room in code}
        return self.model_copy(update={"precision": ", ".join(kept), "code": joined})


def write_note(draft: Path, note: Note) -> None:
    """Write or replace the note of a draft."""
    place = draft / TEMPORARY / NOTE
    place.parent.mkdir(exist_ok=True)
    write_whole(place, canonical_json(note.model_dump()))


def read_note(training: Path) -> Note | None:
    """Return the note of a training, published or not, if there is one."""
    if (training / TEMPORARY / NOTE).is_file():
        return read_record(training / TEMPORARY / NOTE, Note)
    if not (training / MANIFEST).is_file():
        return None
    # Of a draft that was killed while it was published, a file may be written again already.
    manifest = read_sealed(training / MANIFEST, Manifest)
    return Note(
        depends_on=manifest.depends_on,
        precision=manifest.made_by.get("precision", UNKNOWN),
        code=manifest.code.get("train", {}),
    )
