"""Engines: what runs the model and the search, on token ids. No torch here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nmtkit.recipe import DecodingConfig

DIVERGED = (  # the message for a model that outputs NaN
    "the model produces NaN instead of probabilities: its training diverged; lower [training] "
    "learning_rate_scale and train again"
)


MAX_LINES = 16_384  # that are translated at a time
# Weights times beams times lines that a core translates in a minute or so.
WORK_PER_MINUTE = 100_000_000_000


def lines_per_minute(n_weights: int, beam_size: int, n_cores: int) -> int:
    """Estimate how many lines are translated in a minute, at least 1 and at most `MAX_LINES`.

    No clock is read, so that the same machine always has the same batches.
    """
    return max(1, min(MAX_LINES, WORK_PER_MINUTE * n_cores // (n_weights * beam_size)))


@dataclass(frozen=True)
class Hypothesis:
    """A complete translation."""

    tokens: list[int]  # without BOS and EOS
    score: float  # log_prob / gnmt_length_penalty
    log_prob: float


Link = tuple[int, int]  # a source token and a target token


@dataclass(frozen=True)
class Forced:
    """How a model rates a given translation."""

    log_probs: list[float]  # of each token, the EOS last
    links: list[Link]  # the source token of each token but the EOS; empty unless asked for


def gnmt_length_penalty(length: int, alpha: float) -> float:
    """Return lp(Y) of GNMT (Wu et al. 2016, eq. 14) for a `length` that includes the EOS."""
    return float(((5 + length) / 6) ** alpha)


class Engine(Protocol):
    """Runs a model that is in memory."""

    @property
    def name(self) -> str:
        """Return the name that `--engine` has for it."""

    @property
    def device(self) -> str:
        """Return the kind of device that it runs on, "cpu" or "cuda"."""

    def lines_per_minute(self, beam_size: int) -> int:
        """Return about how many lines it translates in a minute, but at most `MAX_LINES`."""

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        n_best: int,
        progress: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        """Translate sentences by beam search.

        Args:
            sources: The token ids of each sentence, with the EOS.
            decoding: The beam, the length penalty and the maximum length.
            n_best: Number of hypotheses to return, at most the size of the beam.
            progress: Called with the number of sentences that have been translated since the last
                call.

        Returns:
            The hypotheses of each sentence, in input order, best first: at least one, and fewer
            than `n_best` only if the search found fewer with a probability above 0.
        """

    def force(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, align: bool
    ) -> list[Forced]:
        """Rate given translations.

        Args:
            sources: The token ids of each sentence, with the EOS.
            targets: The token ids of each translation, without the EOS.
            align: Whether to find the source token of each target token.

        Returns:
            The ratings, in input order.
        """
