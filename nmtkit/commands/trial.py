"""Trial steps, which measure how fast this machine trains a recipe's model."""

import time
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import numpy.typing as npt

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.stages.chain import INPUTS, Chain
from nmtkit.stages.train import SLACK, open_pairs
from nmtkit.store import Artifact
from nmtkit.training.batches import Pairs, Update
from nmtkit.training.made_up import N_PAIRS, made_up_pairs, news_lengths
from nmtkit.training.metrics import Metrics
from nmtkit.training.trainer import Trainer
from nmtkit.training.work import Work, work_of

# Where a whole update takes too long, parts of updates are timed: the first of this many target
# tokens, each further one of GROWTH times as many.
FIRST_TOKENS, GROWTH = 32, 4
STEPS_OF_A_SIZE = 2  # at least
ENOUGH_STEPS = 50

SAMPLED_PAIRS = 1_000  # of a text that is not prepared
CHARACTERS_PER_TOKEN = 4.3  # of the English and German texts of the demo and of Multi30k


@dataclass(frozen=True)
class TrialText:
    """Pairs to make trial steps with."""

    pairs: Pairs
    n_tokens: int  # in their vocabulary
    is_made_up: bool


def find(chain: Chain, stage: str) -> Artifact | None:
    """Return the artifact of `stage`; none while its fingerprint depends on a missing download."""
    corpora = [corpus for key in INPUTS["prepare"] for corpus in chain.corpora[key]]
    if any(corpus.downloads_of_unknown_hash(chain.machine.downloads_dir) for corpus in corpora):
        return None
    return chain.find(stage)


def text_of(chain: Chain) -> TrialText:
    """Return the recipe's own text if it is prepared here, and otherwise a made-up one."""
    if prepared := find(chain, "prepare"):
        corpus = PreparedCorpus(prepared)
        return TrialText(open_pairs(corpus, "train"), corpus.counts().vocabulary, is_made_up=False)
    n_tokens = chain.expected_vocabulary()
    pairs = made_up_pairs(n_tokens, _lengths(chain), chain.recipe.model.max_positions)
    return TrialText(pairs, n_tokens, is_made_up=True)


def _lengths(chain: Chain) -> npt.NDArray[np.float64]:
    """Estimate the lengths of sentences in subwords, from text if it is here and needs no download.

    Short sentences are faster than long ones: they need less attention.
    """
    corpus = chain.corpora["train"][0]
    if not corpus.is_of_files:
        return news_lengths()
    lines = islice(corpus.pairs(chain.fetch), SAMPLED_PAIRS)
    characters = np.array([[len(src), len(tgt)] for src, tgt in lines])
    return np.resize(1 + characters / CHARACTERS_PER_TOKEN, (N_PAIRS, 2))


def measure_speed(trainer: Trainer, seconds: float) -> float:
    """Return the target tokens per second of the recipe's updates, timed for at most `seconds`.

    A slow machine is timed with parts of updates. The time of a part is that of Adam's step, which
    is the same for all, and that of the gradient, which is proportional to the number of tokens.
    All processes of the trainer's group call this.
    """
    group, updates = trainer.group, trainer.updates()
    whole = trainer.config.tgt_tokens_per_update
    n_tokens = whole if trainer.acceleration.static else min(FIRST_TOKENS, whole)

    def step() -> Metrics:
        return trainer.step(part_of(next(updates), n_tokens, trainer))

    step()  # also pays for setting up
    begin = time.monotonic()
    smaller, timed = None, [step()]
    while len(timed) < ENOUGH_STEPS:
        left = begin + seconds - time.monotonic()
        if group.any(timed[-1].seconds > left):
            break
        may_grow = n_tokens < whole and len(timed) >= STEPS_OF_A_SIZE
        if may_grow and not group.any(GROWTH * timed[-1].seconds > left):
            n_tokens = min(whole, GROWTH * n_tokens)
            smaller, timed = _typical(timed), []
        timed.append(step())
    largest = _typical(timed)
    # The updates of a tiny corpus do not grow.
    if smaller is None or n_tokens == whole or largest.tgt_tokens <= smaller.tgt_tokens:
        return largest.tgt_tokens / largest.seconds
    per_token = (largest.seconds - smaller.seconds) / (largest.tgt_tokens - smaller.tgt_tokens)
    return whole / (largest.seconds + max(0.0, per_token) * (whole - largest.tgt_tokens))


def _typical(timed: list[Metrics]) -> Metrics:
    """Return the step of median speed: one that something else delayed does not count."""
    return sorted(timed, key=lambda step: step.seconds / step.tgt_tokens)[(len(timed) - 1) // 2]


def part_of(update: Update, n_tokens: int, trainer: Trainer) -> Work:
    """Return the work of as many pairs of `update` as have up to `n_tokens` target tokens.

    Each process gets its share of a part, as it does of a whole update.
    """
    ends = np.cumsum(trainer.pairs.tgt_lengths[update.pairs])
    n_pairs = max(1, int(np.searchsorted(ends, n_tokens, side="right")))
    if n_pairs == len(update.pairs):
        return trainer.work_of(1, update)
    share = int(SLACK * n_tokens / trainer.group.size) + 1
    return work_of(
        1,
        replace(update, pairs=update.pairs[:n_pairs]),
        trainer.pairs,
        trainer.group,
        max_tokens=min(trainer.max_tokens, share),
        capacity=None,
    )
