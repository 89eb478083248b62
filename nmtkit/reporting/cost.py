"""What a training costs as Table 2 counts it: time x devices x sustained single-precision rate.

The rates of the paper's devices are its own (section 6.1, footnote). Those of later devices are two
operations, a multiplication and an addition, per core and cycle at the boost clock, as NVIDIA's
data sheets count single precision without tensor cores. The matrix products of a training in
bfloat16 can exceed that rate: such a cost is one of time, not a count of operations.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# What the two counts are called wherever they are shown.
BY_TIME = "cost as in Table 2 (time x devices x rate)"
COUNTED = "matrix products, counted"

PAPER, SHEET = "the paper, section 6.1", "NVIDIA's data sheet"

# FLOP/s and who says so, by the beginning of CUDA's name of a device, a regular expression.
RATES = {
    r"(NVIDIA )?Tesla K80\b": (2.8e12, PAPER),
    r"(NVIDIA )?Tesla K40": (3.7e12, PAPER),
    r"(NVIDIA )?Tesla M40\b": (6.0e12, PAPER),
    r"(NVIDIA )?Tesla P100\b": (9.5e12, PAPER),
    r"(NVIDIA )?Tesla V100-SXM2\b": (2 * 5_120 * 1.530e9, SHEET),
    r"(NVIDIA )?Tesla V100-PCIE\b": (2 * 5_120 * 1.380e9, SHEET),
    r"(NVIDIA |Tesla )T4\b": (2 * 2_560 * 1.590e9, SHEET),
    r"NVIDIA A100\b": (2 * 6_912 * 1.410e9, SHEET),
    r"NVIDIA A40\b": (2 * 10_752 * 1.740e9, SHEET),
    r"NVIDIA A10\b": (2 * 9_216 * 1.695e9, SHEET),
    r"NVIDIA RTX A6000\b": (2 * 10_752 * 1.800e9, SHEET),
    r"NVIDIA GeForce RTX 3090$": (2 * 10_496 * 1.695e9, SHEET),
    r"NVIDIA GeForce RTX 4090$": (2 * 16_384 * 2.520e9, SHEET),
    r"NVIDIA L4\b": (2 * 7_424 * 2.040e9, SHEET),
    r"NVIDIA L40S\b": (2 * 18_176 * 2.520e9, SHEET),
    r"NVIDIA H100 PCIe\b": (2 * 14_592 * 1.755e9, SHEET),
    r"NVIDIA H100 80GB HBM3\b": (2 * 16_896 * 1.980e9, SHEET),
    r"NVIDIA H200\b": (2 * 16_896 * 1.980e9, SHEET),
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
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def training_cost(
    seconds: float, n_devices: int, device: str, product_flops: float
) -> TrainingCost:
    """Return the cost of `seconds` of steps on so many devices of this name."""
    nobody = (None, f"no rate of {device} is listed")
    rate, source = next((rate for name, rate in RATES.items() if re.match(name, device)), nobody)
    by_time = None if rate is None else seconds * n_devices * rate
    return TrainingCost(seconds, n_devices, device, rate, source, by_time, product_flops)
