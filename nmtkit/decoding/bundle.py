"""Bundles: weights, config, subwords, tokenization and decoding settings in one folder.

Raw text in, raw text out, nothing else needed. No torch here: an engine reads the weights.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmtkit.config.recipe import DecodingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.engine import Engine
from nmtkit.decoding.lines import Text, TextTranslator, max_subwords
from nmtkit.model.description import MODEL, Description
from nmtkit.model.weights import WEIGHTS
from nmtkit.store.artifacts import Artifact, open_directory
from nmtkit.store.files import check_room, share_file
from nmtkit.store.records import read_json, read_record, write_json
from nmtkit.store.verification import verify
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

DECODING = "decoding.json"
AVERAGED = "averaged.json"  # of an average of checkpoints: their steps


@dataclass(frozen=True)
class Bundle:
    """A bundle, opened; its weights are still on the disk."""

    artifact: Artifact
    description: Description
    decoding: DecodingConfig
    text: Text

    def verified_weights(self) -> Path:
        return self.description.verified_weights(self.artifact)

    def hashes_of_text(self) -> dict[str, str]:
        return PreparedCorpus(self.artifact).hashes_of_text()

    @property
    def max_subwords(self) -> int:
        return max_subwords(self.description.config)

    def translator(self, engine: Engine) -> TextTranslator:
        return TextTranslator(self.text, engine, self.decoding, self.max_subwords)


def write_bundle(
    folder: Path,
    text: Iterable[Path],
    model: Description,
    decoding: DecodingConfig,
    weights: "Mapping[str, Tensor] | Path",
) -> None:
    """Write a bundle's files. `text` are those not in it already, `weights` perhaps a bundle's."""
    for path in text:
        shutil.copyfile(path, folder / path.name)
    model.save(folder)
    write_json(folder / DECODING, decoding.model_dump(exclude_defaults=True))
    if isinstance(weights, Path):
        share_file(weights / WEIGHTS, folder / WEIGHTS)
    else:
        from nmtkit.store.tensors import save_tensors  # the only need of torch here

        check_room(folder, sum(tensor.nbytes for tensor in weights.values()), "the bundle")
        save_tensors(dict(weights), folder / WEIGHTS)


def open_bundle(folder: Path) -> Bundle:
    """Open the bundle in `folder`, which may come from a stranger."""
    artifact = open_directory(folder)
    for name in (WEIGHTS, MODEL, DECODING):
        if name not in artifact.manifest.files:
            raise UserError(f"{folder} is not a bundle: it has no {name}; give one from `average`")
    verify(artifact, *(artifact.manifest.files.keys() - {WEIGHTS}))
    description = Description.load(folder)
    decoding = read_record(folder / DECODING, DecodingConfig)
    return Bundle(artifact, description, decoding, Text.load(artifact, description.n_rows))


def averaged_steps(bundle: Artifact) -> list[int]:
    """Return the steps of the checkpoints that a bundle is the average of."""
    steps: list[int] = read_json(verify(bundle, AVERAGED).file(AVERAGED))["steps"]
    return steps
