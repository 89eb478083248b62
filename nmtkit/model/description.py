"""What a model is, beside its weights: a file of trainings and of bundles."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from nmtkit.artifacts import Record, read_record, write_json
from nmtkit.recipe import ModelConfig

MODEL = "model.json"


class Description(Record):
    """A model's section of a recipe, and what follows from the vocabulary."""

    config: ModelConfig
    n_rows: Annotated[int, Field(ge=1, lt=2**63)]  # of its embedding matrix

    def save(self, folder: Path) -> None:
        """Write what `load` reads."""
        write_json(folder / MODEL, self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def load(cls, folder: Path) -> "Description":
        """Read what `save` wrote.

        Raises:
            DamagedError: The file is missing, or contains something else.
        """
        return read_record(folder / MODEL, cls)
