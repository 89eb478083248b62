"""Training cost as Table 2 counts it: time x devices x sustained single-precision rate.

A training in bfloat16 can exceed the single-precision rate of its device: its cost is then a
measure of time, not a count of operations.
"""

import re
from dataclasses import dataclass

# Names of the two ways to count.
BY_TIME = "cost as in Table 2 (time x devices x rate)"
COUNTED = "matrix products, counted"

PAPER = "the paper, section 6.1"
DATA_SHEET = "NVIDIA's data sheet"

# Sustained single-precision FLOP/s, by a regular expression for the beginning of the name that CUDA
# reports. The rates of the paper's devices are its own (section 6.1, footnote).
PAPER_RATES = {
    r"(NVIDIA )?Tesla K80\b": 2.8e12,
    r"(NVIDIA )?Tesla K40": 3.7e12,
    r"(NVIDIA )?Tesla M40\b": 6.0e12,
    r"(NVIDIA )?Tesla P100\b": 9.5e12,
}
# Number of CUDA cores and boost clock in Hz. As the data sheets count single precision without
# tensor cores, a core does a multiplication and an addition per cycle.
CORES_AND_CLOCKS = {
    r"(NVIDIA )?Tesla V100-SXM2\b": (5_120, 1.530e9),
    r"(NVIDIA )?Tesla V100-PCIE\b": (5_120, 1.380e9),
    r"(NVIDIA |Tesla )T4\b": (2_560, 1.590e9),
    r"NVIDIA A100\b": (6_912, 1.410e9),
    r"NVIDIA A40\b": (10_752, 1.740e9),
    r"NVIDIA A10\b": (9_216, 1.695e9),
    r"NVIDIA RTX A6000\b": (10_752, 1.800e9),
    r"NVIDIA GeForce RTX 3090$": (10_496, 1.695e9),
    r"NVIDIA GeForce RTX 4090$": (16_384, 2.520e9),
    r"NVIDIA L4\b": (7_424, 2.040e9),
    r"NVIDIA L40S\b": (18_176, 2.520e9),
    r"NVIDIA H100 PCIe\b": (14_592, 1.755e9),
    r"NVIDIA H100 80GB HBM3\b": (16_896, 1.980e9),
    r"NVIDIA H200\b": (16_896, 1.980e9),
}


@dataclass(frozen=True)
class TrainingCost:
    """The cost of a training, counted in two ways that need not agree."""

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
    """Compute the cost of a training.

    Args:
        seconds: Time of all steps.
        device: Name of a device, see `utils.hardware.device_name`.
        product_flops: Operations of all matrix products.
    """
    rate, source = _rate(device)
    time_flops = None if rate is None else seconds * n_devices * rate
    return TrainingCost(seconds, n_devices, device, rate, source, time_flops, product_flops)


def _rate(device: str) -> tuple[float | None, str]:
    """Return the sustained single-precision FLOP/s of a device, if it is listed, and the source."""
    for pattern, rate in PAPER_RATES.items():
        if re.match(pattern, device):
            return rate, PAPER
    for pattern, (n_cores, clock) in CORES_AND_CLOCKS.items():
        if re.match(pattern, device):
            return 2 * n_cores * clock, DATA_SHEET
    return None, f"no rate of {device} is listed"
