"""What a training costs as Table 2 counts it: time x devices x sustained single-precision rate.

The rates of the paper's devices are its own (section 6.1, footnote). Those of later devices are two
operations, a multiplication and an addition, per core and cycle at the boost clock, as NVIDIA's
data sheets count single precision without tensor cores. The matrix products of a training in
bfloat16 can exceed that rate: such a cost is one of time, not a count of operations.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmtkit.duration import duration

if TYPE_CHECKING:
    import torch

# What the two counts are called wherever they are shown.
BY_TIME = "cost as in Table 2 (time x devices x rate)"
COUNTED = "matrix products, counted"

PAPER = "the paper, section 6.1"


def _of_sheet(n_cores: int, mhz: int, source: str) -> tuple[float, str]:
    return 2.0 * n_cores * mhz * 1e6, f"NVIDIA {source}: {n_cores:,} cores, {mhz:,} MHz"


# FLOP/s and who says so, by the beginning of CUDA's name of a device, a regular expression.
RATES = {
    r"(NVIDIA )?Tesla K80\b": (2.8e12, PAPER),
    r"(NVIDIA )?Tesla K40": (3.7e12, PAPER),
    r"(NVIDIA )?Tesla M40\b": (6.0e12, PAPER),
    r"(NVIDIA )?Tesla P100\b": (9.5e12, PAPER),
    r"(NVIDIA )?Tesla V100-SXM2\b": _of_sheet(5_120, 1_530, "Tesla V100 data sheet"),
    r"(NVIDIA )?Tesla V100-PCIE\b": _of_sheet(5_120, 1_380, "Tesla V100 data sheet"),
    r"(NVIDIA |Tesla )T4\b": _of_sheet(2_560, 1_590, "T4 data sheet"),
    r"NVIDIA A100\b": _of_sheet(6_912, 1_410, "A100 data sheet"),
    r"NVIDIA A40\b": _of_sheet(10_752, 1_740, "A40 data sheet"),
    r"NVIDIA A10\b": _of_sheet(9_216, 1_695, "A10 data sheet"),
    r"NVIDIA RTX A6000\b": _of_sheet(10_752, 1_800, "RTX A6000 data sheet"),
    r"NVIDIA GeForce RTX 3090$": _of_sheet(10_496, 1_695, "Ampere GA102 whitepaper"),
    r"NVIDIA GeForce RTX 4090$": _of_sheet(16_384, 2_520, "Ada whitepaper"),
    r"NVIDIA L4\b": _of_sheet(7_424, 2_040, "L4 data sheet"),
    r"NVIDIA L40S\b": _of_sheet(18_176, 2_520, "L40S data sheet"),
    r"NVIDIA H100 PCIe\b": _of_sheet(14_592, 1_755, "H100 data sheet"),
    r"NVIDIA H100 80GB HBM3\b": _of_sheet(16_896, 1_980, "H100 data sheet"),
    r"NVIDIA H200\b": _of_sheet(16_896, 1_980, "H200 data sheet"),
}


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


def device_name(device: "torch.device") -> str:
    """Return what a device is called: its name in CUDA, or CPU."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def training_cost(
    seconds: float, n_devices: int, device: str, product_flops: float
) -> TrainingCost:
    """Return the cost of a training.

    Args:
        seconds: the time of all steps.
        n_devices: how many devices worked for so long.
        device: the name of each.
        product_flops: of the matrix products of all steps.
    """
    nobody = (None, f"no rate of {device} is listed")
    rate, source = next((rate for name, rate in RATES.items() if re.match(name, device)), nobody)
    by_time = None if rate is None else seconds * n_devices * rate
    return TrainingCost(seconds, n_devices, device, rate, source, by_time, product_flops)


def by_time(cost: TrainingCost) -> str:
    """Return the cost as Table 2 counts it, and its factors."""
    if cost.time_flops is None or cost.rate is None:
        return f"unknown: {cost.rate_source}"
    return (
        f"{cost.time_flops:.2g} FLOPs: {duration(cost.seconds)} x {cost.n_devices:,} x "
        f"{cost.rate / 1e12:.1f} TFLOP/s of {cost.device} ({cost.rate_source})"
    )
