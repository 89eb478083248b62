"""The table of artifacts that `runs` and `gc` print."""

from collections.abc import Sequence
from typing import Protocol

from rich.filesize import decimal

from nmtkit.reporting.grid import Grid
from nmtkit.utils.text import duration


class Artifact(Protocol):
    """The properties of an artifact that the table needs."""

    @property
    def run(self) -> str | None:
        """The arguments of `nmtkit run`; None if they are not recorded."""

    @property
    def stage(self) -> str:
        """The stage that published it."""

    @property
    def fingerprint(self) -> str:
        """Its fingerprint."""

    @property
    def n_bytes(self) -> int:
        """Size on disk."""

    @property
    def age_seconds(self) -> float:
        """Time since it was published."""


def artifacts_grid(title: str, remarks: Sequence[tuple[Artifact, str]], column: str) -> Grid:
    """Return a table of artifacts.

    Args:
        title: Title of the table.
        remarks: The artifacts with their remarks.
        column: Head of the column of remarks.
    """
    rows = []
    for artifact, remark in remarks:
        row = (
            artifact.run or "?",  # an older version may not have recorded it
            artifact.stage,
            artifact.fingerprint,
            remark,
            decimal(artifact.n_bytes),
            duration(artifact.age_seconds),
        )
        rows.append(row)
    return Grid.of(title, ("run", "stage", "fingerprint", column, "size", "age"), rows, 4)
