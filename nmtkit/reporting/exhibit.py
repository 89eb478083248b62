"""A table or figure that another command measured, kept for the report: RUNS/report/KEY.json."""

import base64
from pathlib import Path
from typing import Literal, get_args

from nmtkit.files import Record, canonical_json, read_record, write_whole
from nmtkit.reporting.grid import Grid

FOLDER = "report"

Key = Literal["table-1", "figures-3-5"]
KEYS: tuple[Key, ...] = get_args(Key)


class Panel(Record):
    """A table of an exhibit: its first columns are labels, the others are numbers."""

    title: str
    columns: list[str]
    n_labels: int
    rows: list[list[str]]

    @classmethod
    def of(cls, grid: Grid) -> "Panel":
        """Return a table whose rows stand in no groups."""
        rows = [list(row) for group in grid.groups for row in group]
        return cls(title=grid.title, columns=list(grid.columns), n_labels=grid.n_labels, rows=rows)

    def grid(self) -> Grid:
        """Return it as all tables are shown."""
        rows = [[tuple(row)] for row in self.rows]
        return Grid(self.title, tuple(self.columns), self.n_labels, rows)


class Drawing(Record):
    """A picture of an exhibit; it is shown as an image, so that nothing in it can run."""

    title: str
    svg: str

    @property
    def address(self) -> str:
        """The picture itself, as the source of an image."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


class Exhibit(Record):
    """What is shown, and the command that makes it again."""

    format: Literal[1] = 1
    command: str
    made_by: dict[str, str]  # versions, and the code of nmtkit that measured it
    notes: list[str]
    panels: list[Panel]
    drawings: list[Drawing]


def write_exhibit(runs_dir: Path, key: Key, exhibit: Exhibit) -> Path:
    """Write what `read_exhibit` reads, whole or not at all, and return its path."""
    place = runs_dir / FOLDER / f"{key}.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, canonical_json(exhibit.model_dump(mode="json")))
    return place


def read_exhibit(runs_dir: Path, key: Key) -> Exhibit | None:
    """Return what was written, or nothing if the command was never run.

    Raises:
        DamagedError: The file contains something else, or is larger than 2 MiB.
    """
    place = runs_dir / FOLDER / f"{key}.json"
    return read_record(place, Exhibit) if place.is_file() else None
