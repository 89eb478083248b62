"""Sentence pairs without meaning, to measure training where no text is prepared yet."""

import numpy as np
import numpy.typing as npt

from nmtkit.symbols import SPECIALS
from nmtkit.training.batches import Ints, Pairs

# WMT14 English-German has about these lengths in subwords. In news, the logarithm of target length
# over source length has a standard deviation of 0.16.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
RATIO_SPREAD = 0.16
N_PAIRS = 100_000


def news_lengths() -> npt.NDArray[np.float64]:
    """Draw (N_PAIRS, 2) lengths like those of news."""
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, (N_PAIRS, 1))
    sides = generator.lognormal(0.0, RATIO_SPREAD / 2**0.5, (N_PAIRS, 2))
    return np.array(MEAN_LENGTHS) * sizes * sides


def made_up_pairs(n_tokens: int, lengths: npt.NDArray[np.float64], max_length: int) -> Pairs:
    """Draw pairs from a vocabulary of `n_tokens`.

    Args:
        n_tokens: size of the vocabulary.
        lengths: (pairs, 2) of the two sides.
        max_length: longer sides are cut.
    """
    generator = np.random.default_rng(0)
    sides = []
    for side in lengths.round().astype(np.int64).clip(1, max_length).T:
        offsets: Ints = np.concatenate([np.zeros(1, np.int64), side.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return Pairs(*sides)
