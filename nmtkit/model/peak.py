"""How fast a device multiplies matrices at best: the peak that MFU and estimates refer to."""

import time

import torch

# Measured FLOP/s of the product of two 8,192 x 8,192 matrices in bfloat16.
PEAK_FLOPS = {"NVIDIA H200": 788e12}


def known_peak(device: torch.device) -> float:
    """Return the FLOP/s of a device whose peak is known, and 0 of any other."""
    if device.type != "cuda":
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in PEAK_FLOPS.items() if name.startswith(known)), 0.0)


def measured_peak(
    device: torch.device, seconds: float, dtype: torch.dtype = torch.float32
) -> float:
    """Multiply matrices of `dtype` for about `seconds`, and return the FLOP/s of the fastest time.

    On a CPU, products of several sizes are timed. Only small ones end before another program gets
    the core, and only large ones keep many cores busy.
    """
    widths = (8_192,) if device.type == "cuda" else (256, 512, 1_024, 2_048)
    return max(_fastest(width, device, seconds / len(widths), dtype) for width in widths)


def _fastest(width: int, device: torch.device, seconds: float, dtype: torch.dtype) -> float:
    a, b = (torch.randn(width, width, device=device).to(dtype) for _ in "ab")
    fastest, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < seconds:
        begin = time.perf_counter()
        (a @ b)[0, 0].item()
        fastest = min(fastest, time.perf_counter() - begin)
    return 2 * width**3 / fastest
