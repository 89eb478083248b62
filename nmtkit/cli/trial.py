"""Trial steps, which measure how fast this machine trains a recipe's model."""

import time
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from nmtkit import progress
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import open_pairs
from nmtkit.symbols import SPECIALS
from nmtkit.training.batches import Ints, Pairs
from nmtkit.training.metrics import Metrics
from nmtkit.training.trainer import Trainer

PART_TOKENS = 2_048  # target tokens of a part of an update
ENOUGH_STEPS = 50

# WMT14 English-German has about these lengths in subwords.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
N_PAIRS = 100_000  # made up


@dataclass(frozen=True)
class TrialText:
    pairs: Pairs
    n_tokens: int  # in their vocabulary
    is_made_up: bool


def text_of(chain: Chain) -> TrialText:
    """Return the recipe's own text if it is prepared here, and otherwise a made-up one."""
    if prepared := chain.find("prepare"):
        corpus = PreparedCorpus(prepared)
        pairs = open_pairs(corpus, "train", chain.recipe.corpus.weights)
        return TrialText(pairs, corpus.counts().vocabulary, is_made_up=False)
    n_tokens = chain.expected_vocabulary()
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, (N_PAIRS, 1))
    lengths = (np.array(MEAN_LENGTHS) * sizes).round().astype(np.int64)
    lengths = lengths.clip(1, chain.recipe.model.max_positions)
    sides = []
    for side in lengths.T:
        offsets: Ints = np.concatenate([np.zeros(1, np.int64), side.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return TrialText(Pairs(*sides), n_tokens, is_made_up=True)


def measure_speed(trainer: Trainer, seconds: float) -> float:
    """Return the target tokens per second of updates, after a first one, in at most `seconds`.

    A CPU is timed with parts of updates. All processes of the trainer's group call this.
    """
    updates, whole = trainer.updates(), trainer.config.tgt_tokens_per_update
    n_tokens = whole if trainer.acceleration.static else min(PART_TOKENS, whole)

    def step() -> Metrics:  # of an update, or of its first pairs, up to `n_tokens`
        update = next(updates)
        ends = np.cumsum(trainer.pairs.tgt_lengths[update.pairs])
        n_pairs = max(1, int(np.searchsorted(ends, n_tokens, side="right")))
        return trainer.step(trainer.work_of(1, replace(update, pairs=update.pairs[:n_pairs])))

    trainer.shared = True  # a part may have fewer tokens than the user's own maximum
    if trainer.group.device.type == "cuda":
        trainer.rehearse(ENOUGH_STEPS, say=progress.say)
    step()  # also pays for setting up
    begin = time.monotonic()
    timed = [step()]
    while len(timed) < ENOUGH_STEPS:
        if trainer.group.any(timed[-1].seconds > begin + seconds - time.monotonic()):
            break
        timed.append(step())
    return median(step.tgt_tokens / step.seconds for step in timed)
