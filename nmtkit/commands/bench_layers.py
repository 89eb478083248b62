"""bench layers: Table 1 measured on this machine."""

import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import Node

from nmtkit import progress
from nmtkit.commands.layer_types import LAYER_TYPES, LayerType, Sizes
from nmtkit.machine import Machine
from nmtkit.reporting.layers import Growth, LayerRow, LayerTable, LayerTime

BACKWARD = 2  # products for each product of the forward pass
MIN_REPEATS = 2
# Large enough that arithmetic takes most of the time, and small enough for a minute.
SIZES = {"cpu": Sizes(1_024, 512, 3, 64), "cuda": Sizes(8_192, 1_024, 3, 512)}
SWEEPS = {
    "cpu": {
        "n": (256, 512, 1_024, 2_048),
        "d": (128, 256, 512, 1_024),
        "k": (3, 5, 9),
        "r": (64, 128, 256),
    },
    "cuda": {
        "n": (2_048, 4_096, 8_192, 16_384),
        "d": (512, 1_024, 2_048, 4_096),
        "k": (3, 5, 9),
        "r": (512, 1_024, 2_048),
    },
}
SENTENCES = {"cpu": 1, "cuda": 8}
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}
SHORT = (32, 64)  # lengths at which operations are counted, and layers until all is seen
SHORT_SIZES = Sizes(0, 8, 3, 9)


def bench_layers(machine: Machine, seconds: float) -> LayerTable:
    """Measure each layer type of Table 1, forward and backward.

    Args:
        machine: Where to compute.
        seconds: For how long each size is repeated; its fastest time counts.
    """
    device = machine.torch_device()
    sizes = SIZES[device.type]
    rows, times = [], []
    for kind in LAYER_TYPES:
        progress.say(f"bench: {kind.name}")
        found = {each: _seconds(kind, each, device, seconds) for each in _sizes(kind, device)}
        times += [_time(kind, each, taken, device) for each, taken in found.items()]
        at_base = _time(kind, sizes, found[sizes], device)
        rows.append(
            LayerRow(
                layer=kind.name,
                complexity=kind.complexity,
                sequential=kind.sequential,
                path=kind.path,
                seconds=at_base.seconds,
                flops=at_base.flops,
                growths=[_growth(kind, over, found, sizes) for over in kind.grows_with],
                chains=[chain_length(kind, SHORT_SIZES._replace(n=n)) for n in SHORT],
                paths=[path_length(kind, SHORT_SIZES._replace(n=n)) for n in SHORT],
            )
        )
    return LayerTable(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        threads=torch.get_num_threads(),
        dtype=str(DTYPES[device.type]).removeprefix("torch."),
        n_sentences=SENTENCES[device.type],
        **sizes._asdict(),
        short_lengths=list(SHORT),
        short_k=SHORT_SIZES.k,
        short_r=SHORT_SIZES.r,
        rows=rows,
        times=times,
    )


def _sizes(kind: LayerType, device: torch.device) -> Iterator[Sizes]:
    """Yield the sizes at which a layer is timed: one variable at a time, and each only once."""
    base = SIZES[device.type]
    yield base
    for over in kind.grows_with:
        for value in SWEEPS[device.type][over]:
            if value != getattr(base, over):
                yield base._replace(**{over: value})


def _seconds(kind: LayerType, sizes: Sizes, device: torch.device, limit: float) -> float:
    """Return the time of the fastest forward and backward pass, after one that is not timed."""
    dtype = DTYPES[device.type]
    layer = kind.layer(sizes).to(device, dtype)
    shape = SENTENCES[device.type], sizes.n, sizes.d
    x = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn(shape, device=device, dtype=dtype)
    inputs = [x, *layer.parameters()]

    def timed() -> float:
        begin = time.perf_counter()
        torch.autograd.grad(layer(x), inputs, grad)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    timed()
    taken = [timed() for _ in range(MIN_REPEATS)]
    while sum(taken) < limit:
        taken.append(timed())
    return min(taken)


def _time(kind: LayerType, sizes: Sizes, taken: float, device: torch.device) -> LayerTime:
    flops = (1 + BACKWARD) * SENTENCES[device.type] * kind.flops(sizes)
    return LayerTime(layer=kind.name, **sizes._asdict(), seconds=taken, flops=float(flops))


def _growth(kind: LayerType, over: str, found: dict[Sizes, float], base: Sizes) -> Growth:
    points = [each for each in found if each == base._replace(**{over: getattr(each, over)})]
    values = [getattr(each, over) for each in points]
    exponent, r_squared = fitted_power(values, [found[each] for each in points])
    of_flops, _ = fitted_power(values, [float(kind.flops(each)) for each in points])
    return Growth(over=over, exponent=exponent, of_flops=of_flops, r_squared=r_squared)


def fitted_power(x: list[int], y: list[float]) -> tuple[float, float]:
    """Fit y = a x^b by least squares to the logarithms; return b and R²."""
    log_x, log_y = np.log(x), np.log(y)
    b, a = np.polyfit(log_x, log_y, 1)
    residual = float(np.sum((log_y - a - b * log_x) ** 2))
    return float(b), 1 - residual / float(np.sum((log_y - log_y.mean()) ** 2))


def chain_length(kind: LayerType, sizes: Sizes) -> int:
    """Count the operations of a layer that wait for one another.

    They are the longest path through the graph that autograd records.
    """
    x = torch.randn(sizes.n, sizes.d, requires_grad=True)
    return _longest(kind.whole(sizes)(x))


def _longest(output: Tensor) -> int:
    root = output.grad_fn
    length: dict[Node | None, int] = {None: 0}
    stack = [root]
    while stack:  # depth first; recursion would be too deep
        node = stack[-1]
        below = [each for each, _ in node.next_functions] if node else []
        missing = [each for each in below if each not in length]
        stack += missing
        if not missing:
            length[stack.pop()] = 1 + max((length[each] for each in below), default=0)
    return length[root]


def path_length(kind: LayerType, sizes: Sizes) -> int:
    """Count the steps until the first position influences the last, by its gradient."""
    torch.manual_seed(1)
    x = torch.randn(sizes.n, sizes.d, dtype=torch.float64, requires_grad=True)
    step: Callable[[Tensor, int], Tensor] = kind.step(sizes)
    y = x
    for number in count():
        y = step(y, number)
        (gradient,) = torch.autograd.grad(y[-1].sum(), x, retain_graph=True)
        if gradient[0].any():
            return number + 1
    raise AssertionError("unreachable")
