"""Trial steps, which measure how fast this machine trains a recipe's model."""

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.train import open_pairs
from nmtkit.store.verification import verify
from nmtkit.training.batches import Ints, Pairs
from nmtkit.training.step import Trainer

PART_TOKENS = 2_048  # target tokens of a part of an update
N_ROUNDS = 4
ENOUGH_STEPS = 13  # of a round

# WMT14 English-German has about these lengths in subwords.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
N_PAIRS = 100_000  # made up


class TimedStep(NamedTuple):
    tgt_tokens: int  # in all processes
    seconds: float


@dataclass(frozen=True)
class TrialText:
    pairs: Pairs
    n_tokens: int  # in their vocabulary
    is_made_up: bool


def text_of(pipeline: Pipeline) -> TrialText:
    """Return the recipe's own text if it is prepared here, and otherwise a made-up one."""
    if prepared := pipeline.find("prepare"):
        corpus = PreparedCorpus(verify(prepared))
        pairs = open_pairs(corpus, "train", pipeline.recipe.corpus.weights)
        return TrialText(pairs, corpus.counts().vocabulary, is_made_up=False)
    n_tokens = pipeline.expected_vocabulary()
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, (N_PAIRS, 1))
    lengths = (np.array(MEAN_LENGTHS) * sizes).round().astype(np.int64)
    lengths = lengths.clip(1, pipeline.recipe.model.max_positions)
    sides = []
    for side in lengths.T:
        offsets: Ints = np.concatenate([np.zeros(1, np.int64), side.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return TrialText(Pairs(*sides), n_tokens, is_made_up=True)


def measure_speed(trainer: Trainer, seconds: float) -> list[float]:
    """Return the target tokens per second of rounds of updates, after a first one.

    There are two rounds, and more if they end in `seconds`. A CPU is timed with parts of updates.
    All processes of the trainer's group call this.
    """
    updates = trainer.updates()
    n_tokens = trainer.config.tgt_tokens_per_update
    if trainer.group.device.type == "cpu":
        n_tokens = min(PART_TOKENS, n_tokens)
        trainer.multiple_of = trainer.group.size  # a part may have a single micro-batch

    def step() -> TimedStep:
        """Train on an update, or on its first pairs up to `n_tokens`."""
        begin = time.monotonic()
        update = next(updates)
        ends = np.cumsum(trainer.pairs.tgt_lengths[update.pairs])
        n_pairs = max(1, int(np.searchsorted(ends, n_tokens, side="right")))
        part = replace(update, pairs=update.pairs[:n_pairs])
        prepared = trainer.prepare(part, step=1)
        trainer.train_step(prepared).wait()
        return TimedStep(prepared.tgt_tokens, time.monotonic() - begin)

    step()  # also pays for setting up
    begin, speeds = time.monotonic(), list[float]()
    for number in range(1, N_ROUNDS + 1):
        end, timed = begin + seconds * number / N_ROUNDS, [step()]
        while len(timed) < ENOUGH_STEPS:
            if trainer.group.any(timed[-1].seconds > end - time.monotonic()):
                break
            timed.append(step())
        speeds.append(sum(each.tgt_tokens for each in timed) / sum(each.seconds for each in timed))
        if number > 1 and trainer.group.any(time.monotonic() > begin + seconds):
            break
    return speeds
