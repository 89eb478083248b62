"""The maximum speed of matrix products on a device, to which MFU and estimates refer."""

import time

import torch
from torch.nn.functional import linear

# Small products end before another program gets the core; only large ones keep all cores busy.
WIDTHS = {"cpu": (256, 512, 1_024, 2_048), "cuda": (8_192,)}


def measured_peak(device: torch.device, seconds: float, dtype: torch.dtype) -> float:
    """Measure the maximum speed of matrix products, in FLOP/s.

    Args:
        seconds: Duration of the measurement.
        dtype: Data type of the matrices.
    """
    widths = WIDTHS["cuda" if device.type == "cuda" else "cpu"]
    peak = 0.0
    for width in widths:
        x = torch.randn(width, width, device=device).to(dtype)
        weight = torch.randn(width, width, device=device).to(dtype)
        end = time.perf_counter() + seconds / len(widths)
        while (begin := time.perf_counter()) < end:
            # Reading a number waits for the device.
            linear(x, weight)[0, 0].item()
            peak = max(peak, 2 * width**3 / (time.perf_counter() - begin))
    return peak
