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
from nmtkit.artifacts import Artifact, Record
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.corpus.tokenizations import Tokenizations
from nmtkit.decoding.beam_search import Hypothesis
from nmtkit.decoding.translator import translate_ids
from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import check_weights
from nmtkit.recipe import Count, DecodingConfig, ModelConfig
from nmtkit.reporting.cost import count_parameters
from nmtkit.symbols import EOS_ID
from nmtkit.training.checkpoint import load_weights, save_tensors

WEIGHTS, MODEL = "model.safetensors", "model.json"
# Of the table to begin with; a longer sentence has it made anew, whatever a bundle says.
MAX_SINUSOIDS = 1_024
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


class Description(Record):
    """The model whose weights lie beside it."""

    config: ModelConfig
    n_rows: Count  # of its embedding matrix


def open_bundle(folder: Path, device: torch.device) -> Bundle:
    """Load the bundle in `folder`, which may come from a stranger.

    What it says about itself is compared before any memory is taken on its word.

    Raises:
        UserError: it is none, or is damaged.
    """
    artifact = artifacts.open_directory(folder)
    for name in (WEIGHTS, MODEL):
        if name not in artifact.manifest.files:
            raise UserError(f"{folder} is no bundle: it has no {name}; name what `average` made")
    artifacts.verify(artifact)
    described = artifacts.read_record(folder / MODEL, Description)
    config, n_rows = described.config, described.n_rows
    n_weights = count_parameters(config, n_rows).total
    check_weights(folder / WEIGHTS, config, n_rows, n_weights)
    if config.positions == "sinusoid":
        n_positions = min(config.max_positions, MAX_SINUSOIDS)
        config = config.model_copy(update={"max_positions": n_positions})
    with torch.device(device):
        model = Transformer(config, n_rows)
    load_weights(model, folder / WEIGHTS)
    return bundle_of(model, artifact)


def bundle_of(model: Transformer, artifact: Artifact) -> Bundle:
    """Join `model` with the subwords and the tokenization that lie in `artifact`.

    Raises:
        UserError: they are damaged, or belong to a larger model.
    """
    subword = load_subword(artifact)
    n_rows = len(model.output_matrix)
    if subword.n_tokens > n_rows:
        raise UserError(
            f"the vocabulary in {artifact.path} has {subword.n_tokens:,} tokens, and the model has "
            f"{n_rows:,} rows; delete the folder and make it again"
        )
    sides = Tokenizations.load(artifact)
    return Bundle(model, subword, sides.src, sides.tgt)
