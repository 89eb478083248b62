"""How the cost of a training is shown: counted in two ways, both named."""

from nmtkit.duration import duration
from nmtkit.reporting.devices import TrainingCost

# What the two counts are called wherever they are shown.
BY_TIME = "cost as in Table 2 (time x devices x rate)"
COUNTED = "matrix products, counted"


def by_time(cost: TrainingCost) -> str:
    """Return the cost as Table 2 counts it, and its factors."""
    if cost.time_flops is None or cost.rate is None:
        return f"unknown: {cost.rate_source}"
    return (
        f"{cost.time_flops:.2g} FLOPs: {duration(cost.seconds)} x {cost.n_devices:,} x "
        f"{cost.rate / 1e12:.1f} TFLOP/s of {cost.device} ({cost.rate_source})"
    )
