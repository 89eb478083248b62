"""The seed of sacreBLEU's resampling."""

import os

from nmtkit.utils.errors import UserError

SEED, DEFAULT_SEED = "SACREBLEU_SEED", "12345"  # as in sacreBLEU


def seed() -> str:
    """Return the seed that sacreBLEU takes: that of SACREBLEU_SEED, or its default."""
    found = os.environ.get(SEED, DEFAULT_SEED).lower()
    if found != "none" and not (found.isascii() and found.isdigit()):
        raise UserError(f"{SEED} is {found!r}; give a whole number, or None for a random seed")
    return found
