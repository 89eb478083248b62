"""Trial steps, which measure how fast this machine trains a recipe's model."""

import time
from dataclasses import dataclass, replace

import numpy as np

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import open_pairs
from nmtkit.symbols import SPECIALS
from nmtkit.training.batches import Ints, Pairs, Update
from nmtkit.training.metrics import Metrics
from nmtkit.training.setup import SLACK
from nmtkit.training.trainer import Trainer, Work

# Where a whole update takes too long, parts of updates are timed: the first of this many target
# tokens, each further one of GROWTH times as many.
FIRST_TOKENS, GROWTH = 32, 4
STEPS_OF_A_SIZE = 2  # at least
ENOUGH_STEPS = 50

# WMT14 English-German has about these lengths in subwords. In news, the logarithm of target length
# over source length has a standard deviation of 0.16.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
RATIO_SPREAD = 0.16
N_PAIRS = 100_000  # made up


@dataclass(frozen=True)
class TrialText:
    """Pairs to make trial steps with."""

    pairs: Pairs
    n_tokens: int  # in their vocabulary
    is_made_up: bool


def text_of(chain: Chain) -> TrialText:
    """Return the recipe's own text if it is prepared here, and otherwise a made-up one."""
    if prepared := chain.find("prepare"):
        corpus = PreparedCorpus(prepared)
        return TrialText(open_pairs(corpus, "train"), corpus.counts().vocabulary, is_made_up=False)
    n_tokens = chain.expected_vocabulary()
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, (N_PAIRS, 1))
    lengths = np.array(MEAN_LENGTHS) * sizes
    lengths *= generator.lognormal(0.0, RATIO_SPREAD / 2**0.5, (N_PAIRS, 2))
    lengths = lengths.round().astype(np.int64).clip(1, chain.recipe.model.max_positions)
    sides = []
    for side in lengths.T:
        offsets: Ints = np.concatenate([np.zeros(1, np.int64), side.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return TrialText(Pairs(*sides), n_tokens, is_made_up=True)


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
        return trainer.step(_part_of(next(updates), n_tokens, trainer))

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


def _part_of(update: Update, n_tokens: int, trainer: Trainer) -> Work:
    """Return the work of as many pairs of `update` as have up to `n_tokens` target tokens.

    Each process gets its share of a part, as it does of a whole update.
    """
    ends = np.cumsum(trainer.pairs.tgt_lengths[update.pairs])
    n_pairs = max(1, int(np.searchsorted(ends, n_tokens, side="right")))
    if n_pairs == len(update.pairs):
        return trainer.work_of(1, update)
    share = int(SLACK * n_tokens / trainer.group.size) + 1
    part = replace(update, pairs=update.pairs[:n_pairs])
    return trainer.work_of(1, part, min(trainer.max_tokens, share))
