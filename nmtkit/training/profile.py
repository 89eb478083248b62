"""Where the time of a training step goes, by operation, from torch's profiler."""

from collections.abc import Callable, Iterator

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

# The part of an operation: the first of these prefixes that its name, or the name of one of its
# callers, begins with. Attention, loss and optimizer are single calls, forward and backward.
PARTS = {
    "_InRectangles": "attention",
    "torch_attn::": "attention",
    "_ChunkedCrossEntropy": "loss",
    "Optimizer.": "optimizer",
    "aten::_fused_adam": "optimizer",
    "aten::mm": "other GEMMs",
    "aten::addmm": "other GEMMs",
    "mkldnn::_linear": "other GEMMs",
}
OTHER, GAPS = "elementwise", "gaps"
NAMES = ("attention", "other GEMMs", "loss", OTHER, "optimizer", GAPS)


def time_parts(step: Callable[[], float], seconds: float, device: torch.device) -> dict[str, float]:
    """Profile one step, and return the seconds of each part.

    Operations are timed on the device that computes them. "elementwise" is every other operation,
    including copies and look-ups. "gaps" is the time in which no operation ran.

    Args:
        step: makes a step and returns how many seconds it took.
        seconds: what a step takes without the profiler. On a GPU, gaps are relative to it.
        device: where the step computes.
    """
    on_cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with profile(activities=activities, acc_events=True) as profiled:
        seconds_profiled = step()
    parts = dict.fromkeys(NAMES, 0.0)
    events = profiled.events()
    assert events is not None
    for event in events:
        if event.device_type.name == "CPU":
            spent = event.self_device_time_total if on_cuda else event.self_cpu_time_total
            parts[_part(event)] += spent / 1e6
    parts[GAPS] = max(0.0, (seconds if on_cuda else seconds_profiled) - sum(parts.values()))
    return parts


def _part(event: FunctionEvent) -> str:
    for name in _names(event):
        for beginning, part in PARTS.items():
            if name.startswith(beginning):
                return part
    return OTHER


def _names(event: FunctionEvent | None) -> Iterator[str]:
    """Yield the names of an operation's callers, outermost first, and its own."""
    if event is not None:
        yield from _names(event.cpu_parent)
        yield event.name
