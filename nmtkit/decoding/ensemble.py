"""Ensembles: several models with one vocabulary search together."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from threading import Event

import torch
from torch import Tensor

from nmtkit.decoding.beam_search import StepModel


def log_mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean probability (..., V) of models, none above 0.

    Where one has more rows V than others, beyond the vocabulary, the smallest number counts.
    """
    if len(log_probs) == 1:
        return log_probs[0]
    n_rows = min(each.shape[-1] for each in log_probs)
    total = torch.stack([each[..., :n_rows] for each in log_probs]).logsumexp(0)
    return total.sub_(math.log(len(log_probs))).clamp_(max=0)


class Ensemble:
    """A `StepModel` of one or several models for the same sentences, until it is stopped."""

    def __init__(self, models: Sequence[StepModel], stopping: Event) -> None:
        self._models, self._stopping = models, stopping

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token (B, K) of each beam; return log-probabilities in parts."""
        if self._stopping.is_set():
            raise CancelledError
        parts = zip(*[model.step(tokens) for model in self._models], strict=True)
        return map(log_mean_probability, parts)

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the places `sentences` (B',) and of each its `beams` (B', K'), in this order."""
        for model in self._models:
            model.reorder(sentences, beams)
