"""The interface of engines: they run the model and beam search on token ids.

This module does not import torch, because not all engines need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import isnan
from typing import ClassVar, TypeVar

from nmtkit.config.model import DecodingConfig
from nmtkit.utils.errors import Advance, DivergedError, UserError

DIVERGED = (  # the message for a model that outputs NaN
    "the model produces NaN instead of probabilities: its training diverged; lower [training] "
    "learning_rate_scale and retrain"
)
# Lines that are translated at a time, and lost by a stop: minutes of work on a slow CPU.
PART_LINES = {"cpu": 1_024, "cuda": 16_384}

# Of sampling. Beyond them, it is greedy search, or does not depend on the model.
MIN_TEMPERATURE = 0.01
MAX_TEMPERATURE = 100.0

Sentences = Sequence[Sequence[int]]  # ids; those of sources end in EOS, those of translations not
Link = tuple[int, int]  # a source token and a target token

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Sampling:
    """Draw each token of a translation at random, by the model's probabilities, without a beam.

    Attributes:
        seed: Another seed gives other translations.
        temperature: Divisor of the logits; below 1, probable tokens are drawn more often.
        top_k: Draw from the k most probable tokens; None for all.
    """

    seed: int = 1
    temperature: float = 1.0
    top_k: int | None = None

    def check(self) -> None:
        """Check the values.

        Raises:
            UserError: A value is out of range.
        """
        if not 0 <= self.seed < 2**31:
            raise UserError(f"the seed is {self.seed}; expected an integer from 0 to 2147483647")
        if not MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            raise UserError(
                f"the temperature is {self.temperature:g}; expected a number from "
                f"{MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top_k is {self.top_k}; expected a positive integer")


@dataclass(frozen=True)
class Hypothesis:
    """A translation of a sentence."""

    tokens: list[int]  # without BOS and EOS
    score: float  # log_prob / length_penalty
    log_prob: float

    @classmethod
    def from_tokens(
        cls, tokens: list[int], log_prob: float, decoding: DecodingConfig
    ) -> "Hypothesis":
        """Return a hypothesis with its score.

        Args:
            tokens: Ids without EOS.
            log_prob: Log-probability, EOS included.
            decoding: The length penalty.

        Raises:
            DivergedError: The log-probability is NaN.
        """
        # NaN compares as false with any score, and would end up anywhere in the order.
        if isnan(log_prob):
            raise DivergedError(DIVERGED)
        return cls(tokens, log_prob / length_penalty(len(tokens) + 1, decoding), log_prob)


@dataclass(frozen=True)
class ForcedDecoding:
    """The result of forced decoding for a sentence and its translation."""

    log_probs: list[float]  # of all tokens, EOS last
    links: list[Link]  # the source tokens of all tokens but EOS; empty unless requested


def length_penalty(length: int, decoding: DecodingConfig) -> float:
    """Return the divisor of log-probabilities for a `length` that includes the EOS.

    It is lp(Y) of GNMT (Wu et al. 2016, eq. 14), or fairseq's (`--lenpen`).
    """
    alpha = decoding.length_penalty
    if decoding.length_penalty_formula == "fairseq":
        return float(length**alpha)
    return float(((5 + length) / 6) ** alpha)


class Engine(ABC):
    """A model in memory, or an ensemble, and its search."""

    name: ClassVar[str]  # the value of `--engine`
    device: str  # the kind of device that it runs on, "cpu" or "cuda"

    @abstractmethod
    def translate(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, advance: Advance
    ) -> list[list[Hypothesis]]:
        """Translate sentences by beam search, in input order.

        Args:
            sources: Ids of the sentences, with EOS.
            decoding: Beam size and length penalty.
            n_best: Maximum number of hypotheses per sentence.
            advance: Called with the number of sentences that have been translated.

        Returns:
            One or more hypotheses per sentence, best first. There are fewer than `n_best` only if
            the search found fewer with a probability above 0.
        """

    @abstractmethod
    def sample(
        self, sources: Sentences, decoding: DecodingConfig, sampling: Sampling, advance: Advance
    ) -> list[Hypothesis]:
        """Draw a translation of every sentence at random, in input order.

        Args:
            sources: Ids of the sentences, with EOS.
            decoding: Length penalty, for scores, and maximum length.
            sampling: How tokens are drawn.
            advance: Called with the number of sentences that have been translated.

        Returns:
            The translations, with the log-probabilities of the model: those of neither the
            temperature nor the most probable tokens.
        """

    @abstractmethod
    def force(self, sources: Sentences, targets: Sentences, *, align: bool) -> list[ForcedDecoding]:
        """Compute the log-probabilities of translations, in input order.

        Args:
            sources: Ids of the sentences, with EOS.
            targets: Ids of their translations, without EOS.
            align: Also link target tokens to source tokens.
        """


def map_groups(
    function: Callable[[list[Item]], Iterable[Result]], groups: Iterable[Sequence[Item]]
) -> list[list[Result]]:
    """Apply a function to the items of all groups at once, and group its results likewise.

    An engine batches sentences by length, and is fastest with many at a time.

    Args:
        function: Returns one result per item, in the same order.
        groups: The items, such as the pieces of lines.

    Returns:
        The results, group by group.
    """
    groups = list(groups)
    # Results come in the order of the items: lengths are enough to regroup them.
    results = iter(function(list(chain.from_iterable(groups))))
    return [list(islice(results, len(group))) for group in groups]
