"""What a training costs as Table 2 counts it: time x devices x sustained single-precision rate.

The rates of the paper's devices are its own (section 6.1, footnote). Those of later devices are two
operations, a multiplication and an addition, per core and cycle at the boost clock, as NVIDIA's
data sheets count single precision without tensor cores. The matrix products of a training in
bfloat16 can exceed that rate: such a cost is one of time, not a count of operations.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from nmtkit.tables import read_tables

# What the two counts are called wherever they are shown.
BY_TIME = "cost as in Table 2 (time x devices x rate)"
COUNTED = "matrix products, counted"

RATES: dict[str, dict[str, Any]] = read_tables(__file__, "rates.toml")


@dataclass(frozen=True)
class TrainingCost:
    """What a training took, counted in two ways that need not agree."""

    seconds: float  # of all steps
    n_devices: int
    device: str
    rate: float | None  # sustained single-precision FLOP/s of a device; None: not listed
    rate_source: str
    time_flops: float | None  # as Table 2: seconds x devices x rate
    product_flops: float  # of matrix products, counted


def training_cost(
    seconds: float, n_devices: int, device: str, product_flops: float
) -> TrainingCost:
    """Return the cost of `seconds` of steps on so many devices of this name."""
    rate, source = _rate(device)
    by_time = None if rate is None else seconds * n_devices * rate
    return TrainingCost(seconds, n_devices, device, rate, source, by_time, product_flops)


def _rate(device: str) -> tuple[float | None, str]:
    """Return the sustained single-precision FLOP/s of a device, and who says so."""
    for source, rates in RATES.items():
        for name, rate in rates.items():
            if re.match(name, device):
                return (2 * math.prod(rate) if isinstance(rate, list) else rate), source
    return None, f"no rate of {device} is listed"
