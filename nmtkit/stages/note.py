"""The note of a training: its inputs, code and machines, kept in its draft."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from nmtkit.store.code_version import own_code
from nmtkit.store.files import write_whole
from nmtkit.store.manifests import MANIFEST, MEASUREMENTS, TEMPORARY, Manifest
from nmtkit.store.records import DamagedError, Record, canonical_json, read_sealed, sealed

NOTE = "note.json"  # in the temporary files of a draft
UNKNOWN = "unknown"  # precision and code of steps whose note is lost


class Part(Record):
    """The settings that some consecutive steps of a training were computed with."""

    first_step: int
    device: str
    device_name: str
    processes: int
    dtype: str  # of activations
    deterministic: bool
    threads: int


class Note(Record):
    """Everything that a training depends on, and the precision, code and machines that computed it.

    Several precisions or commits, if they changed in between, are joined by "+".
    """

    depends_on: dict[str, Any]
    precision: str = ""
    code: dict[str, str] = Field(default={})  # by `CODE_KEYS`
    # By their first step. Those of earlier versions are unknown, except for the last one.
    parts: list[Part] = Field(default=[])
    inputs: dict[str, str] = Field(default={})  # as in the manifest
    sha256: str = ""  # of the other keys, in the file

    def continued(self, part: Part, code: Mapping[str, str]) -> "Note":
        """Return the note after a run has resumed.

        Args:
            part: The settings of the run. If its first step is 1, it replaces all earlier ones.
            code: Version, commit and hash of nmtkit in the run.
        """
        precision = part.dtype
        if part.first_step == 1:  # no step of an earlier run is left
            update = {"precision": precision, "code": dict(code), "parts": [part]}
            return self.model_copy(update=update)
        # Steps after the last checkpoint are trained once more.
        parts = [earlier for earlier in self.parts if earlier.first_step < part.first_step]
        same = parts and parts[-1].model_copy(update={"first_step": part.first_step}) == part
        if not same:
            parts.append(part)
        joined = {}
        for key, value in code.items():
            joined[key] = _joined(self.code.get(key, UNKNOWN), value)
        precision = _joined(self.precision, precision)
        update = {"precision": precision, "code": joined, "parts": parts}
        return self.model_copy(update=update)

    def measurements(self) -> dict[str, Any]:
        """Return the settings of all parts for the measurements of the artifact.

        Values that differ are joined by "+". The training was deterministic if all parts were.
        """
        measurements: dict[str, Any] = {}
        for key in ("device", "device_name", "processes", "dtype", "threads"):
            values = list(dict.fromkeys(getattr(part, key) for part in self.parts))
            measurements[key] = values[0] if len(values) == 1 else "+".join(map(str, values))
        is_complete = bool(self.parts) and self.parts[0].first_step == 1
        measurements["deterministic"] = is_complete and all(
            part.deterministic for part in self.parts
        )
        measurements["parts"] = [part.model_dump() for part in self.parts]
        return measurements


class _Measured(BaseModel):
    """The parts of a published training, in its measurements."""

    parts: list[Part] = []


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
    parts: list[Part] = []
    with suppress(DamagedError):  # nothing that is computed depends on them
        parts = read_sealed(training / MEASUREMENTS, _Measured).parts
    return Note(
        depends_on=manifest.depends_on,
        parts=parts,
        precision=manifest.made_by.get("precision", ""),
        code=own_code(manifest.made_by),
        inputs=manifest.inputs,
    )
