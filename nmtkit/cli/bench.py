"""How fast this machine trains and translates.

Each measurement has a process of its own, since the peak memory of a process never shrinks.
"""

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.filesize import decimal
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from nmtkit import progress
from nmtkit.cli.trial import text_of
from nmtkit.corpus.chunks import call_apart, read_chunks
from nmtkit.decoding.bundle import open_bundle
from nmtkit.fast.peak import measured_peak, peak_dtype
from nmtkit.machine import EngineName, EnginePrecision, Machine
from nmtkit.model.cost import update_flops
from nmtkit.model.weights import count_parameters
from nmtkit.recipe import DecodingConfig
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.grid import Grid
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import setup_of
from nmtkit.training.distributed import Group
from nmtkit.training.setup import enough_memory
from nmtkit.training.trainer import Trainer, Work
from nmtkit.translator import load_engine

Facts = dict[str, Any]
Item = TypeVar("Item")

PEAK_SECONDS = 1.0
UNTIMED_STEPS = 2  # the first steps, which also set up what later ones use
UNTIMED_LINES = 16
STATUS = Path("/proc/self/status")

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


@dataclass(frozen=True)
class Translation:
    """What is translated, and how."""

    bundle: Path
    lines: Sequence[str]
    machine: Machine
    engine: EngineName
    dtype: EnginePrecision
    decoding: DecodingConfig
    batch: int  # lines that the engine gets at a time


def apart(measure: Callable[[Item], Facts], item: Item, *, if_killed: str) -> Facts:
    """Return what `measure` finds of `item` in a process of its own.

    Raises:
        UserError: it was killed, as `if_killed` says, or there is not enough memory.
    """
    quietly = partial(_measured, measure, is_quiet=progress.console.quiet)
    return call_apart(quietly, item, if_killed=if_killed)


def _measured(measure: Callable[[Item], Facts], item: Item, *, is_quiet: bool) -> Facts:
    progress.console.quiet = is_quiet
    return measure(item)


def speed_grid(
    title: str, speeds: Sequence[Facts], n_labels: int, columns: Mapping[str, str]
) -> Grid:
    """Return a table of speeds on one device, a row each.

    Args:
        title: What was measured.
        speeds: What was found.
        n_labels: How many of the first columns hold text.
        columns: How each is written: `{mfu:.1%}`, `{memory}` or another fact.
    """
    first, rows = speeds[0], []
    for speed in speeds:
        words = {**speed, "memory": decimal(speed["peak_bytes"])}
        rows.append(tuple(column.format(**words) for column in columns.values()))
    on = f", threads: {first['threads']}" if first["device"] == "CPU" else ""
    return Grid.of(f"{title} on {first['device']}{on}", tuple(columns), rows, n_labels)


def _machine(device: torch.device) -> Facts:
    """Return what has computed, and the most memory that this process has had there."""
    threads = torch.get_num_threads()
    return {"device": device_name(device), "threads": threads, "peak_bytes": _peak_bytes(device)}


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # On Linux, ru_maxrss includes the memory that the parent had when it started this process.
    if STATUS.exists():
        lines = STATUS.read_text(encoding="utf-8").split("\n")
        (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kib) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def training_speed(chain: Chain, *, seconds: float) -> Facts:
    """Train for about `seconds` after a few untimed steps, then profile one more; keep nothing.

    The text is the recipe's own if it is prepared here, and made up otherwise.
    """
    recipe, device = chain.recipe, chain.machine.torch_device()
    setup, text = setup_of(chain, Group(0, 1, device)), text_of(chain)
    progress.say(
        f"bench: {recipe.name}, {setup.acceleration}: {UNTIMED_STEPS} untimed steps, "
        f"then {seconds:.0f} s"
    )
    n_rows = recipe.model.rows_for(text.n_tokens)
    dtype = peak_dtype(device, setup.acceleration.dtype)
    peak = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # the product took more than a small model
    with enough_memory(device, setup.max_tokens):
        begin = time.perf_counter()
        trainer = setup.trainer(text.pairs, n_rows)
        trainer.rehearse(1)
        coming = trainer.coming()
        for work in islice(coming, UNTIMED_STEPS):
            trainer.step(work)
        started = time.perf_counter()
        timed = []
        while (spent := time.perf_counter() - started) < seconds:  # waiting for work counts
            timed.append(trainer.step(next(coming)))
        machine = _machine(device)
        parts = _parts(trainer, coming, spent / len(timed))
    src, tgt = (sum(getattr(step, f"{side}_tokens") for step in timed) for side in ("src", "tgt"))
    length = float(np.concatenate([text.pairs.src_lengths, text.pairs.tgt_lengths]).mean())
    flops = update_flops(recipe.model, n_rows, src, tgt, round(length)) / spent
    # The speed of a shared machine varies, so its peak is measured before and after.
    peak = max(peak, measured_peak(device, PEAK_SECONDS, dtype))
    return {
        **machine,
        "recipe": recipe.name,
        "way": str(setup.acceleration),
        "text": "made up" if text.is_made_up else "the recipe's",
        "n_parameters": count_parameters(recipe.model, n_rows).total,
        "steps": len(timed),
        "tgt_tokens_per_update": tgt / len(timed),
        "tgt_tokens_per_second": tgt / spent,
        "flops": flops,
        "mfu": flops / peak,
        "peak_flops": peak,
        "peak_of": str(dtype).removeprefix("torch."),
        "start_seconds": started - begin,
        "parts": parts,
    }


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


def translation_speed(how: Translation) -> Facts:
    """Translate some lines; loading, tokenizing and a few untimed lines are not counted."""
    device = how.machine.torch_device()
    begin = time.perf_counter()
    bundle = open_bundle(how.bundle)
    engine = load_engine([bundle], how.machine, how.engine, how.dtype)
    load_seconds = time.perf_counter() - begin
    sources = [bundle.text.encode(line) for line in how.lines]

    def n_tokens(some: Sequence[Sequence[int]]) -> int:
        """Translate, and count the tokens of the translations, EOS included."""
        found = engine.translate(some, how.decoding, n_best=1, progress=lambda _: None)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)

    n_tokens(sources[:UNTIMED_LINES])
    begin = time.perf_counter()
    n = sum(map(n_tokens, read_chunks(sources, how.batch)))
    seconds = time.perf_counter() - begin
    return {
        **_machine(device),
        "engine": engine.name,
        "dtype": how.dtype,
        "beam_size": how.decoding.beam_size,
        "batch": how.batch,
        "sentences": len(sources),
        "sentences_per_second": len(sources) / seconds,
        "tokens_per_second": n / seconds,
        "load_seconds": load_seconds,
    }
