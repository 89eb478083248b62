"""The table of artifacts that `runs` and `gc` print."""

from collections.abc import Sequence
from typing import Protocol

from rich.filesize import decimal

from nmtkit.reporting.grid import Grid
from nmtkit.utils.text import duration


class Artifact(Protocol):
    """What is shown of an artifact."""

    @property
    def run(self) -> str | None: ...  # None: not recorded
    @property
    def stage(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def n_bytes(self) -> int: ...
    @property
    def age_seconds(self) -> float: ...


def artifacts_grid(title: str, remarks: Sequence[tuple[Artifact, str]], column: str) -> Grid:
    """Return a table of artifacts, each with a remark that is shown in the column `column`."""
    rows = []
    for artifact, remark in remarks:
        size, age = decimal(artifact.n_bytes), duration(artifact.age_seconds)
        run = artifact.run or "?"
        rows.append((run, artifact.stage, artifact.fingerprint, remark, size, age))
    return Grid.of(title, ("run", "stage", "fingerprint", column, "size", "age"), rows, 4)
