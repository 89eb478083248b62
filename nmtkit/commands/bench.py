"""bench: how fast this machine trains a recipe's model, and where the time of a step goes."""

import gc
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from nmtkit import progress
from nmtkit.cli.trial import TrialText, text_of
from nmtkit.corpus.chunks import call_apart
from nmtkit.fast.peak import measured_peak, peak_dtype
from nmtkit.model.cost import update_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.facts import TrainingSpeed
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import say_faster_ways, setup_of
from nmtkit.training.distributed import Group
from nmtkit.training.metrics import Metrics
from nmtkit.training.setup import Setup, enough_memory
from nmtkit.training.trainer import Trainer, Work

UNTIMED_STEPS = 2  # the first steps, which also set up what later ones use
STATUS = Path("/proc/self/status")
PEAK_SECONDS = 1.0  # for measuring the peak

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


def bench_training(chain: Chain, seconds: float, *, each_technique: bool) -> list[TrainingSpeed]:
    """Train for about `seconds` after a few untimed steps, then profile one more; keep nothing.

    The text is the recipe's own if it is prepared here, and made up otherwise.

    Args:
        chain: the recipe on this machine.
        seconds: of timed steps.
        each_technique: measure also plain float32, and then each technique that makes a GPU fast on
            top of those before it.

    Raises:
        UserError: there is not enough memory.
    """
    # The peak memory of a process never shrinks, so each recipe has a process of its own.
    bench = partial(
        _bench_each,
        seconds=seconds,
        each_technique=each_technique,
        is_quiet=progress.console.quiet,
    )
    name = chain.recipe.name
    return call_apart(
        bench,
        chain,
        if_killed=(
            f"the training of {name} was killed, perhaps for lack of memory; lower --max-tokens"
        ),
    )


def _bench_each(
    chain: Chain, *, seconds: float, each_technique: bool, is_quiet: bool
) -> list[TrainingSpeed]:
    progress.console.quiet = is_quiet
    group = Group(0, 1, chain.machine.torch_device())
    setup = setup_of(chain, group)
    say_faster_ways(chain, setup)
    ways = setup.acceleration.steps()
    text = text_of(chain)
    with enough_memory(group.device, setup.max_tokens):
        return [
            _bench(chain, seconds, way, replace(setup, acceleration=how), text)
            for way, how in (ways if each_technique else ways[-1:])
        ]


def _bench(
    chain: Chain,
    seconds: float,
    way: str,
    setup: Setup,
    text: TrialText,
) -> TrainingSpeed:
    recipe, pairs, acceleration, group = chain.recipe, text.pairs, setup.acceleration, setup.group
    progress.say(
        f"bench: {recipe.name}, {way}: {UNTIMED_STEPS} untimed steps, then {seconds:.0f} s"
    )
    dtype = peak_dtype(group.device, acceleration.dtype)
    peak_before = measured_peak(group.device, PEAK_SECONDS, dtype)
    _forget_last(group.device)
    n_rows = recipe.model.rows_for(text.n_tokens)
    begin = time.perf_counter()
    trainer = setup.trainer(pairs, n_rows)
    coming = _begun(trainer)
    start_seconds = time.perf_counter() - begin
    timed, spent = _train_for(seconds, trainer, coming)
    src_tokens = sum(metrics.src_tokens for metrics in timed)
    tgt_tokens = sum(metrics.tgt_tokens for metrics in timed)
    length = round(float(np.concatenate([pairs.src_lengths, pairs.tgt_lengths]).mean()))
    precision = str(dtype).removeprefix("torch.")
    flops = update_flops(recipe.model, n_rows, src_tokens, tgt_tokens, length) / spent
    memory = peak_bytes(group.device)
    parts = _parts(trainer, coming, spent / len(timed))
    # The speed of a shared machine varies, so its peak is measured before and after.
    peak_flops = max(peak_before, measured_peak(group.device, PEAK_SECONDS, dtype))
    return TrainingSpeed(
        recipe=recipe.name,
        way=way,
        device=device_name(group.device),
        threads=torch.get_num_threads(),
        text="made up" if text.is_made_up else "the recipe's",
        n_parameters=count_parameters(recipe.model, n_rows).total,
        steps=len(timed),
        tgt_tokens_per_update=tgt_tokens / len(timed),
        tgt_tokens_per_second=tgt_tokens / spent,
        flops=flops,
        mfu=flops / peak_flops,
        peak_of=f"a {precision} product here, {peak_flops / 1e9:,.0f} GFLOP/s",
        peak_bytes=memory,
        start_seconds=start_seconds,
        fill=_fill(coming, is_static=acceleration.static),
        parts=parts,
    )


def _begun(trainer: Trainer) -> Iterator[Work]:
    """Make the untimed steps, and return the work of those that follow."""
    trainer.rehearse(1)
    coming = trainer.coming()
    for work in islice(coming, UNTIMED_STEPS):
        trainer.step(work)
    return coming


def _train_for(
    seconds: float, trainer: Trainer, coming: Iterator[Work]
) -> tuple[list[Metrics], float]:
    """Return the steps made, and the seconds they took, including waiting for work."""
    timed: list[Metrics] = []
    started = time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        timed.append(trainer.step(next(coming)))
    return timed, spent


def _parts(trainer: Trainer, coming: Iterator[Work], seconds: float) -> dict[str, float]:
    """Return the share of each part in a step that takes `seconds`.

    The profiler cannot tell the operations of a CUDA graph apart, so the step is made without it.
    """
    trainer.backward.captured = False
    if trainer.acceleration.captured:
        trainer.step(next(coming))
    parts = time_parts(lambda: trainer.step(next(coming)).seconds, seconds, trainer.group.device)
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def time_parts(step: Callable[[], float], seconds: float, device: torch.device) -> dict[str, float]:
    """Profile one step, and return the seconds of each part, on the device that computes it.

    "elementwise" is every other operation, including copies and look-ups. "gaps" is the time in
    which no operation ran.

    Args:
        step: makes a step and returns how many seconds it took.
        seconds: what a step takes without the profiler. On a GPU, gaps are relative to it.
    """
    on_cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
    with profile(activities=activities, acc_events=True) as profiled:
        seconds_profiled = step()
    parts = dict.fromkeys(NAMES, 0.0)
    for event in profiled.events() or []:
        if event.device_type.name == "CPU":
            spent = event.self_device_time_total if on_cuda else event.self_cpu_time_total
            parts[_part(event)] += spent / 1e6
    parts[GAPS] = max(0.0, (seconds if on_cuda else seconds_profiled) - sum(parts.values()))
    return parts


def _part(event: FunctionEvent) -> str:
    callers = [event]
    while (caller := callers[-1].cpu_parent) is not None:
        callers.append(caller)
    for each in reversed(callers):
        for beginning, part in PARTS.items():
            if each.name.startswith(beginning):
                return part
    return OTHER


def _fill(coming: Iterator[Work], *, is_static: bool) -> float:
    """Return the share of real tokens in a few updates' rows, or in attention's rectangles."""
    real = places = 0
    for work in islice(coming, 10):
        real += work.src_tokens + work.tgt_tokens
        for _, batch in work.batches:
            for layout in (batch.src_layout, batch.tgt_layout):
                if is_static:
                    places += layout.n_tokens
                else:
                    places += sum(each.mask.numel() for each in layout.rectangles)
    return real / places


def _forget_last(device: torch.device) -> None:
    """Start the next measurement with empty memory and nothing compiled."""
    gc.collect()  # what refers to itself is still there
    if device.type == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return the most memory that this process has had on `device`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # On Linux, ru_maxrss includes the memory that the parent had when it started this process.
    if STATUS.exists():
        lines = STATUS.read_text(encoding="utf-8").split("\n")
        (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kib) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
