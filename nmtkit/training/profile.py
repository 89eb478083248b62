"""Where the time of a training step goes, by the operations that torch's profiler saw."""

from collections.abc import Callable, Iterator

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

# Which part an operation belongs to: that of the first name here which it, or what called it,
# begins with. Attention, the loss and the optimizer are calls of their own, forward and backward.
PARTS = {
    "_PackedAttention": "attention",
    "torch_attn::": "attention",
    "_ChunkedCrossEntropy": "loss",
    "Optimizer.": "optimizer",
    "aten::_fused_adam": "optimizer",
    "aten::mm": "other GEMMs",
    "aten::addmm": "other GEMMs",
}
OTHER, GAPS = "elementwise", "gaps"
NAMES = ("attention", "other GEMMs", "loss", OTHER, "optimizer", GAPS)


def time_parts(step: Callable[[], float], seconds: float, device: torch.device) -> dict[str, float]:
    """Return the seconds of each part of one `step()`, which returns its own.

    Operations are timed on the device that computes. "elementwise" is every operation that is
    nothing else, copies and look-ups included; "gaps" is when no operation ran: on a GPU what is
    missing from the `seconds` of a step that was not profiled.
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
    """Yield the name of an operation and of its callers, outermost first."""
    if event is not None:
        yield from _names(event.cpu_parent)
        yield event.name
