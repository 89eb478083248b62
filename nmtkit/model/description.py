"""The description of a model next to its weights: a file of trainings and of bundles."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nmtkit.config.model import ModelConfig
from nmtkit.model.weights import WEIGHTS, check_header
from nmtkit.store.artifacts import Artifact, verify
from nmtkit.store.records import Record, read_record, write_json

MODEL = "model.json"


def inference_settings(config: ModelConfig) -> dict[str, Any]:
    """Return the values that the output of a trained model depends on: all but both dropouts."""
    return config.model_dump(exclude={"dropout", "attention_dropout"})


class Description(Record):
    """A model's section of a recipe, and what follows from the vocabulary."""

    config: ModelConfig
    n_rows: Annotated[int, Field(ge=1, lt=2**63)]  # of its embedding matrix

    def inference_settings(self) -> dict[str, Any]:
        """Return all values that the output of the model depends on, except its weights."""
        return {**inference_settings(self.config), "rows of embeddings": self.n_rows}

    def verified_weights(self, folder: Artifact) -> Path:
        """Return the file of the weights in a bundle or a checkpoint, verified.

        The sizes that its header declares are compared before memory is allocated for them.
        """
        path = verify(folder, WEIGHTS).file(WEIGHTS)
        check_header(path, self.config, self.n_rows)
        return path

    def save(self, folder: Path) -> None:
        """Write model.json into a folder."""
        write_json(folder / MODEL, self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def load(cls, folder: Path) -> "Description":
        """Read model.json of a folder."""
        return read_record(folder / MODEL, cls)
