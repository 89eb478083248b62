"""The seed of sacreBLEU's resampling. Fingerprints need it, without importing sacreBLEU."""

import os

from nmtkit.utils.errors import UserError

SEED = "SACREBLEU_SEED"  # environment variable, as in sacreBLEU
DEFAULT_SEED = "12345"


def seed() -> str:
    """Return the seed that sacreBLEU uses: the value of SACREBLEU_SEED, or its default.

    Raises:
        UserError: The value is not a seed.
    """
    value = os.environ.get(SEED, DEFAULT_SEED).lower()
    if value != "none" and not (value.isascii() and value.isdigit()):
        raise UserError(
            f"{SEED} is {value!r}; set it to a whole number, or to None for a random seed"
        )
    return value
