"""Bundles: weights, config, subwords and tokenization in one folder.

Raw text in, raw text out, nothing else needed.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmtkit import artifacts
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.decoding.beam_search import Hypothesis
from nmtkit.decoding.translator import translate_ids
from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import EOS_ID
from nmtkit.training.checkpoint import load_weights, save_tensors

WEIGHTS, MODEL, TOKENIZATION = "model.safetensors", "model.json", "tokenization.json"
NOT_OF_A_BUNDLE = ("counts.json", "samples.json", "manifest.json", "measurements.json")


@dataclass(frozen=True)
class Translation:
    """A line of output and how the model rates it."""

    text: str
    score: float  # log-probability divided by the length penalty
    log_prob: float
    n_tokens: int


@dataclass(frozen=True)
class Bundle:
    """A model that translates text."""

    model: Transformer
    subword: Subword
    src: Tokenization
    tgt: Tokenization

    def translate(
        self, lines: Sequence[str], decoding: DecodingConfig, progress: Callable[[int], None]
    ) -> list[Translation]:
        """Translate raw `lines` one by one, in their order; an empty line stays empty."""
        tokenized = [self.src.tokenize(line) for line in lines]
        numbers = [i for i, tokens in enumerate(tokenized) if tokens]
        hypotheses = translate_ids(
            self.model,
            [[*self.subword.encode(tokenized[i]), EOS_ID] for i in numbers],
            n_tokens=self.subword.n_tokens,
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            max_extra_tokens=decoding.max_extra_tokens,
            progress=progress,
        )
        translations = [Translation("", 0.0, 0.0, 0)] * len(lines)
        for i, hypothesis in zip(numbers, hypotheses, strict=True):
            translations[i] = self._translation(hypothesis)
        return translations

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        text = self.tgt.detokenize(self.subword.decode(hypothesis.tokens))
        return Translation(text, hypothesis.score, hypothesis.log_prob, len(hypothesis.tokens))


def write_bundle(
    folder: Path, prepared: Path, model: Mapping[str, object], weights: dict[str, Tensor]
) -> None:
    """Write a bundle's files: subwords and tokenization of the prepared corpus, and the model."""
    for path in prepared.iterdir():
        is_data = path.name.startswith(("train.", "dev.", "test."))
        if path.is_file() and not is_data and path.name not in NOT_OF_A_BUNDLE:
            shutil.copyfile(path, folder / path.name)
    artifacts.write_json(folder / MODEL, model)
    save_tensors(weights, folder / WEIGHTS)


def open_bundle(folder: Path, device: torch.device) -> Bundle:
    """Load the bundle in `folder`.

    Raises:
        UserError: it is none, or was altered.
    """
    artifact = artifacts.open_directory(folder)
    for name in (WEIGHTS, MODEL, TOKENIZATION):
        if name not in artifact.manifest["files"]:
            raise UserError(f"{folder} is no bundle: it has no {name}; name what `average` made")
    artifacts.verify(artifact)
    description = artifacts.read_json(folder / MODEL)
    config = ModelConfig.model_validate(description["config"])
    with torch.device(device):
        model = Transformer(config, description["n_rows"])
    load_weights(model, folder / WEIGHTS)
    return bundle_of(model, folder)


def bundle_of(model: Transformer, folder: Path) -> Bundle:
    """`model` with the subwords and the tokenization that lie in `folder`."""
    tokenization = artifacts.read_json(folder / TOKENIZATION)
    return Bundle(
        model,
        load_subword(folder),
        Tokenization(**tokenization["src"]),
        Tokenization(**tokenization["tgt"]),
    )
