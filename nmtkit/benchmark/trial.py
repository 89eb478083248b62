"""Trial steps: measure the speed of a recipe's training on this machine."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import open_pairs
from nmtkit.store.artifacts import verify
from nmtkit.training.batches import Ints, Pairs, Update
from nmtkit.training.step import Trainer

PART_TOKENS = 2_048  # maximum number of target tokens of a step on a CPU
N_ROUNDS = 4
MAX_STEPS = 13  # of a round

# Subwords in the source and target sentences of WMT14 English-German.
MEAN_LENGTHS = (29, 31)
LENGTH_SPREAD = 0.6  # standard deviation over mean
N_PAIRS = 100_000  # of generated text


class TimedStep(NamedTuple):
    """The size and the duration of a step."""

    tgt_tokens: int  # in all processes
    seconds: float


@dataclass(frozen=True)
class TrialText:
    """A training corpus to measure with."""

    pairs: Pairs
    n_tokens: int  # in the vocabulary
    is_generated: bool  # random token ids, not the recipe's text


def trial_text(pipeline: Pipeline) -> TrialText:
    """Return the recipe's own text if it is prepared here, and otherwise a generated one."""
    if prepared := pipeline.find("prepare"):
        corpus = PreparedCorpus(verify(prepared))
        pairs = open_pairs(corpus, "train", pipeline.recipe.corpus.weights)
        return TrialText(pairs, corpus.counts().vocabulary, is_generated=False)

    # The lengths of both sides are proportional to the same gamma-distributed size.
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
    return TrialText(Pairs(*sides), n_tokens, is_generated=True)


def measure_speed(trainer: Trainer, seconds: float) -> float:
    """Measure the speed of training, as it is while no other program uses the machine.

    Other programs can only slow a round of steps down, so the fastest round counts. If threads
    have to share a core with other programs, each step waits for the last one of them, and can
    be 30 times as slow. So a CPU is also measured with one thread, by the processor time that it
    used.

    All processes of the trainer's group call this.

    Args:
        trainer: A trainer, whose weights change.
        seconds: Duration of all rounds. One step is measured even if it takes longer.

    Returns:
        Target tokens per second, in all processes together.
    """
    group = trainer.group
    updates = trainer.updates()
    max_tokens = trainer.config.tgt_tokens_per_update
    # A CPU may need minutes for a whole update. On a GPU, a part takes as long as the whole.
    if group.device.type == "cpu":
        max_tokens = min(PART_TOKENS, max_tokens)
        # A part may have a single micro-batch.
        trainer.setup = replace(trainer.setup, multiple_of=group.size)
    trial = _Trial(trainer, updates, max_tokens)
    trial.step(time.monotonic)  # also sets up the device
    if group.device.type != "cpu" or group.size > 1:
        return max(trial.round_speeds(seconds, time.monotonic))

    n_threads = torch.get_num_threads()
    speeds = []
    if n_threads > 1:
        seconds /= 2
        speeds += trial.round_speeds(seconds, time.monotonic)
    torch.set_num_threads(1)
    try:
        speeds += trial.round_speeds(seconds, time.process_time)
    finally:
        torch.set_num_threads(n_threads)
    return max(speeds)


@dataclass(frozen=True)
class _Trial:
    """Steps of training, for measurements only.

    Attributes:
        trainer: The trainer.
        updates: The updates of its corpus.
        max_tokens: Maximum number of target tokens of a step.
    """

    trainer: Trainer
    updates: Iterator[Update]
    max_tokens: int

    def round_speeds(self, seconds: float, clock: Callable[[], float]) -> list[float]:
        """Return the target tokens per second of each round.

        Args:
            seconds: Duration of all rounds.
            clock: Returns a time in seconds, to measure steps.
        """
        group = self.trainer.group
        begin = time.monotonic()
        speeds: list[float] = []
        for number in range(1, N_ROUNDS + 1):
            end = begin + seconds * number / N_ROUNDS
            timed = [self.step(clock)]
            while len(timed) < MAX_STEPS:
                # The processes stop after the same step, or some would wait for the others.
                if group.any(timed[-1].seconds > end - time.monotonic()):
                    break
                timed.append(self.step(clock))
            tgt_tokens = sum(step.tgt_tokens for step in timed)
            speeds.append(tgt_tokens / sum(step.seconds for step in timed))
            if group.any(time.monotonic() > begin + seconds):
                break
        return speeds

    def step(self, clock: Callable[[], float]) -> TimedStep:
        """Train on the first pairs of the next update, and measure the step."""
        trainer = self.trainer
        begin = clock()
        update = next(self.updates)
        # A whole update may take longer on a CPU than the trial, so it is cut.
        ends = np.cumsum(trainer.pairs.tgt_lengths[update.pairs])
        n_pairs = max(1, int(np.searchsorted(ends, self.max_tokens, side="right")))
        part = replace(update, pairs=update.pairs[:n_pairs])
        prepared = trainer.prepare(part, step=1)
        trainer.train_step(prepared).wait()
        return TimedStep(prepared.tgt_tokens, clock() - begin)
