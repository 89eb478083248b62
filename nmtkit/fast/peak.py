"""How fast a device multiplies matrices at best: the peak that MFU and estimates refer to."""

import time

import torch
from torch.nn.functional import linear


def measured_peak(device: torch.device, seconds: float, dtype: torch.dtype) -> float:
    """Multiply matrices of `dtype`, a `peak_dtype`, for some `seconds`; return the most FLOP/s."""
    # Only small ones end before another program gets the core, only large ones keep cores busy.
    widths = (8_192,) if device.type == "cuda" else (256, 512, 1_024, 2_048)
    most = 0.0
    for width in widths:
        x, weight = (torch.randn(width, width, device=device).to(dtype) for _ in range(2))
        end = time.perf_counter() + seconds / len(widths)
        while (begin := time.perf_counter()) < end:
            linear(x, weight)[0, 0].item()
            most = max(most, 2 * width**3 / (time.perf_counter() - begin))
    return most


def peak_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return `dtype`, or float32 on a CPU: many processors only imitate products of bfloat16."""
    return torch.float32 if device.type == "cpu" else dtype
