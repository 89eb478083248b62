"""Bundles: weights, config, subwords, tokenization and decoding settings in one folder.

Raw text in, raw text out, nothing else needed.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from nmtkit import artifacts
from nmtkit.artifacts import Artifact
from nmtkit.corpus.long_lines import encode_in_pieces
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.corpus.tokenizations import Tokenizations
from nmtkit.decoding.beam_search import Hypothesis
from nmtkit.decoding.translator import translate_ids
from nmtkit.errors import UserError
from nmtkit.model.cost import count_parameters
from nmtkit.model.description import MODEL, Description
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import WEIGHTS, check_weights, load_weights, save_tensors
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import EOS_ID

DECODING = "decoding.json"
# Subwords of a source that are translated at a time, whatever a bundle claims of itself: some four
# times the longest line of news.
MAX_SUBWORDS = 1_024


@dataclass(frozen=True)
class Translation:
    """A line of output and how the model rates it."""

    text: str
    score: float  # log-probability divided by the length penalty, summed over the pieces
    log_prob: float
    n_tokens: int
    n_pieces: int  # that the line was translated in: 0 for an empty one, 1 for nearly all others


@dataclass(frozen=True)
class Bundle:
    """A model that translates text."""

    model: Transformer
    subword: Subword
    src: Tokenization
    tgt: Tokenization
    decoding: DecodingConfig

    @property
    def max_subwords(self) -> int:
        """The most subwords of a line, end symbol counted, that are translated at a time.

        Training has seen no longer sentence, and both memory and time grow with the square of it.
        """
        return min(self.model.config.max_positions, MAX_SUBWORDS)

    def translate(self, lines: Sequence[str], progress: Callable[[int], None]) -> list[Translation]:
        """Translate raw `lines` one by one, in their order; an empty line stays empty.

        A line that is too long is translated in pieces, as if each were a line, and these are
        joined with a space.
        """
        pieces = [list(encode_in_pieces(line, self._encode, self.max_subwords)) for line in lines]
        hypotheses = iter(
            translate_ids(
                self.model,
                [ids for of_line in pieces for ids in of_line],
                n_tokens=self.subword.n_tokens,
                beam_size=self.decoding.beam_size,
                length_penalty=self.decoding.length_penalty,
                max_extra_tokens=self.decoding.max_extra_tokens,
                progress=progress,
            )
        )
        return [self._translation(list(islice(hypotheses, len(of_line)))) for of_line in pieces]

    def _encode(self, text: str) -> list[int]:
        tokens = self.src.tokenize(text)
        return [*self.subword.encode(tokens), EOS_ID] if tokens else []

    def _translation(self, pieces: Sequence[Hypothesis]) -> Translation:
        texts = [self.tgt.detokenize(self.subword.decode(piece.tokens)) for piece in pieces]
        return Translation(
            " ".join(filter(None, texts)),
            sum((piece.score for piece in pieces), start=0.0),
            sum((piece.log_prob for piece in pieces), start=0.0),
            sum(len(piece.tokens) for piece in pieces),
            len(pieces),
        )


def write_bundle(
    folder: Path,
    prepared: PreparedCorpus,
    model: Description,
    decoding: DecodingConfig,
    weights: Mapping[str, Tensor] | Path,
) -> None:
    """Write a bundle's files.

    Args:
        folder: where.
        prepared: whose subwords and tokenization it takes.
        model: what describes the model.
        decoding: how it translates.
        weights: the model's, or another bundle with the same ones, whose file it shares.
    """
    for path in prepared.files_of_a_bundle():
        shutil.copyfile(path, folder / path.name)
    model.save(folder)
    artifacts.write_json(folder / DECODING, decoding.model_dump(exclude_defaults=True))
    if isinstance(weights, Path):
        _share(weights / WEIGHTS, folder / WEIGHTS)
    else:
        save_tensors(dict(weights), folder / WEIGHTS)


def _share(file: Path, place: Path) -> None:
    """Give a file a second name, or a copy where the file system has no hard links."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def open_bundle(folder: Path, device: torch.device) -> Bundle:
    """Load the bundle in `folder`, which may come from a stranger.

    What it says about itself is compared before any memory is taken on its word.

    Raises:
        UserError: it is none, or is damaged.
    """
    artifact = artifacts.open_directory(folder)
    for name in (WEIGHTS, MODEL, DECODING):
        if name not in artifact.manifest.files:
            raise UserError(
                f"{folder} is not a bundle: it has no {name}; give a folder that `average` made"
            )
    artifacts.verify(artifact)
    described = Description.load(folder)
    config, n_rows = described.config, described.n_rows
    n_weights = count_parameters(config, n_rows).total
    check_weights(folder / WEIGHTS, config, n_rows, n_weights)
    if config.positions == "sinusoid":
        n_positions = min(config.max_positions, MAX_SUBWORDS)
        config = config.model_copy(update={"max_positions": n_positions})
    with torch.device(device):
        model = Transformer(config, n_rows)
    load_weights(model, folder / WEIGHTS)
    return bundle_of(model, artifact, artifacts.read_record(folder / DECODING, DecodingConfig))


def bundle_of(model: Transformer, artifact: Artifact, decoding: DecodingConfig) -> Bundle:
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
    return Bundle(model, subword, sides.src, sides.tgt, decoding)
