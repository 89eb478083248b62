"""Bundles: weights, config, subwords, tokenization and decoding settings in one folder.

It contains everything that is needed to translate raw text. This module does not import torch: an
engine reads the weights.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmtkit.config.model import DecodingConfig
from nmtkit.decoding.engine import Engine
from nmtkit.decoding.text_translator import Text, TextTranslator, max_subwords
from nmtkit.model.weights import MODEL, WEIGHTS, Description
from nmtkit.store.artifacts import Artifact, open_directory, verify
from nmtkit.store.files import check_free_space, share_file
from nmtkit.store.records import read_json, read_record, write_json
from nmtkit.store.tensors import save_tensors
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from nmtkit.corpus.vocabulary_map import VocabularyMap

DECODING = "decoding.json"
AVERAGED = "averaged.json"  # of an average of checkpoints: their steps


@dataclass(frozen=True)
class Bundle:
    """An open bundle, whose weights are still on the disk."""

    artifact: Artifact
    description: Description
    decoding: DecodingConfig
    text: Text

    def verified_weights(self) -> Path:
        """Check the file of the weights, and return its path."""
        return self.description.verified_weights(self.artifact)

    def text_hashes(self) -> dict[str, str]:
        """Return the hashes of the files that convert text to ids and back."""
        # Imports numpy, and only several bundles are compared.
        from nmtkit.corpus.prepared import PreparedCorpus

        return PreparedCorpus(self.artifact).text_hashes()

    def vocabulary_map(self) -> "VocabularyMap | None":
        """Read the candidates of target tokens, or return None if the bundle has none."""
        # Imports numpy, and only CTranslate2 uses the map.
        from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP, VocabularyMap

        if VOCABULARY_MAP not in self.artifact.manifest.files:
            return None
        return VocabularyMap.read(self.artifact.file(VOCABULARY_MAP), self.text.subword.n_tokens)

    @property
    def max_subwords(self) -> int:
        """The maximum length of a source, EOS included."""
        return max_subwords(self.description.config)

    def translator(self, engine: Engine) -> TextTranslator:
        """Return a translator of raw text that runs the model in `engine`."""
        return TextTranslator(self.text, engine, self.decoding, self.max_subwords)


def write_bundle(
    folder: Path,
    text: Iterable[Path],
    model: Description,
    decoding: DecodingConfig,
    weights: "Mapping[str, Tensor] | Path",
) -> None:
    """Write the files of a bundle.

    Args:
        folder: The draft of the bundle.
        text: Files of subwords and tokenization to copy, unless the draft has them already.
        model: Config and size of the model.
        decoding: Beam size, length penalty and maximum length.
        weights: Weights by name, or the folder of a bundle with the same weights.
    """
    for path in text:
        shutil.copyfile(path, folder / path.name)
    model.save(folder)
    write_json(folder / DECODING, decoding.model_dump(exclude_defaults=True))
    if isinstance(weights, Path):
        share_file(weights / WEIGHTS, folder / WEIGHTS)
    else:
        check_free_space(folder, sum(tensor.nbytes for tensor in weights.values()), "the bundle")
        save_tensors(dict(weights), folder / WEIGHTS)


def open_bundle(folder: Path) -> Bundle:
    """Open a bundle and verify its files, except for the weights.

    It may come from a stranger: nothing in it is trusted before it is checked.

    Raises:
        UserError: The folder is not a bundle, or a file is damaged.
    """
    artifact = open_directory(folder)
    # Other artifacts have a manifest too, but lack one of these files.
    for name in (WEIGHTS, MODEL, DECODING):
        if name not in artifact.manifest.files:
            raise UserError(
                f"{folder} is not a bundle: it has no {name}; pass a folder written by `nmtkit "
                "average`"
            )
    # The weights are large: an engine verifies them when it loads them.
    verify(artifact, *(artifact.manifest.files.keys() - {WEIGHTS}))
    description = Description.load(folder)
    decoding = read_record(folder / DECODING, DecodingConfig)
    return Bundle(artifact, description, decoding, Text.load(artifact, description.n_rows))


def averaged_steps(bundle: Artifact) -> list[int]:
    """Return the steps of the checkpoints that a bundle is the average of."""
    steps: list[int] = read_json(verify(bundle, AVERAGED).file(AVERAGED))["steps"]
    return steps
