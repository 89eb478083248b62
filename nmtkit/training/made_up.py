"""Sentence pairs without a meaning, to measure training where no text is prepared."""

import numpy as np

from nmtkit.symbols import SPECIALS
from nmtkit.training.batches import Ints, Pairs

# About the lengths of WMT14 English-German in subwords. In news the logarithm of target over source
# length has a standard deviation of 0.16.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
RATIO_SPREAD = 0.16
N_PAIRS = 100_000


def made_up_pairs(n_tokens: int, max_length: int) -> Pairs:
    """Draw pairs from a vocabulary of `n_tokens`, each side up to `max_length` long."""
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, N_PAIRS)
    sides = []
    for mean in MEAN_LENGTHS:
        drawn = mean * sizes * generator.lognormal(0.0, RATIO_SPREAD / 2**0.5, N_PAIRS)
        lengths: Ints = drawn.round().astype(np.int64).clip(1, max_length)
        offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return Pairs(*sides)
