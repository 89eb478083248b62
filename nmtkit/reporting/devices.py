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

PAPER = "the paper, section 6.1"


@dataclass(frozen=True)
class Rate:
    """The single-precision rate of a device."""

    name: str  # a regular expression that begins as CUDA's name of the device
    flops: float  # FLOP/s
    source: str


def _peak(name: str, n_cores: int, mhz: int, source: str) -> Rate:
    return Rate(name, 2.0 * n_cores * mhz * 1e6, f"{source}: {n_cores:,} cores, {mhz:,} MHz")


RATES = (
    Rate(r"(NVIDIA )?Tesla K80\b", 2.8e12, PAPER),
    Rate(r"(NVIDIA )?Tesla K40", 3.7e12, PAPER),
    Rate(r"(NVIDIA )?Tesla M40\b", 6.0e12, PAPER),
    Rate(r"(NVIDIA )?Tesla P100\b", 9.5e12, PAPER),
    _peak(r"(NVIDIA )?Tesla V100-SXM2\b", 5_120, 1_530, "NVIDIA Tesla V100 data sheet"),
    _peak(r"(NVIDIA )?Tesla V100-PCIE\b", 5_120, 1_380, "NVIDIA Tesla V100 data sheet"),
    _peak(r"(NVIDIA |Tesla )T4\b", 2_560, 1_590, "NVIDIA T4 data sheet"),
    _peak(r"NVIDIA A100\b", 6_912, 1_410, "NVIDIA A100 data sheet"),
    _peak(r"NVIDIA A40\b", 10_752, 1_740, "NVIDIA A40 data sheet"),
    _peak(r"NVIDIA A10\b", 9_216, 1_695, "NVIDIA A10 data sheet"),
    _peak(r"NVIDIA RTX A6000\b", 10_752, 1_800, "NVIDIA RTX A6000 data sheet"),
    _peak(r"NVIDIA GeForce RTX 3090$", 10_496, 1_695, "NVIDIA Ampere GA102 whitepaper"),
    _peak(r"NVIDIA GeForce RTX 4090$", 16_384, 2_520, "NVIDIA Ada whitepaper"),
    _peak(r"NVIDIA L4\b", 7_424, 2_040, "NVIDIA L4 data sheet"),
    _peak(r"NVIDIA L40S\b", 18_176, 2_520, "NVIDIA L40S data sheet"),
    _peak(r"NVIDIA H100 PCIe\b", 14_592, 1_755, "NVIDIA H100 data sheet"),
    _peak(r"NVIDIA H100 80GB HBM3\b", 16_896, 1_980, "NVIDIA H100 data sheet"),
    _peak(r"NVIDIA H200\b", 16_896, 1_980, "NVIDIA H200 data sheet"),
)


def device_name(device: "torch.device") -> str:
    """Return what a device is called: its name in CUDA, or CPU."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


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
    """Return the cost of a training.

    Args:
        seconds: the time of all steps.
        n_devices: how many devices worked for so long.
        device: the name of each.
        product_flops: of the matrix products of all steps.
    """
    rate = next((each for each in RATES if re.match(each.name, device)), None)
    return TrainingCost(
        seconds=seconds,
        n_devices=n_devices,
        device=device,
        rate=rate.flops if rate else None,
        rate_source=rate.source if rate else f"no rate of {device} is listed",
        time_flops=seconds * n_devices * rate.flops if rate else None,
        product_flops=product_flops,
    )
