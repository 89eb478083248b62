"""How far a stage came, told beside its files as it goes, so that a killed run is gone on with."""

import shutil
from pathlib import Path
from typing import Any

from nmtkit import artifacts

JOURNAL = "journal.json"


class Journal:
    """The finished parts of a draft that the same code began; any other draft is emptied."""

    def __init__(self, draft: Path) -> None:
        self.folder = draft / artifacts.TEMPORARY
        self._path = self.folder / JOURNAL
        self._made_by = artifacts.versions()
        self._parts: dict[str, Any] = {}
        if self._path.is_file():
            told = artifacts.read_json(self._path)
            if told["made_by"] == self._made_by:
                self._parts = told["parts"]
                return
        shutil.rmtree(draft)
        self.folder.mkdir(parents=True)

    def __getitem__(self, part: str) -> Any:
        """What was committed of a part, or None."""
        return self._parts.get(part)

    def commit(self, part: str, state: object) -> None:
        """Tell how far a part is, once for all; what it tells of must be synced by now."""
        self._parts[part] = state
        new = self._path.with_suffix(".new")
        artifacts.write_json(new, {"made_by": self._made_by, "parts": self._parts})
        artifacts.replace_file(new, self._path)
