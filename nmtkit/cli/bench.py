"""How fast this machine trains and translates, beside the fastest that it multiplies matrices.

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
from nmtkit.cli.trial import TrialText, text_of
from nmtkit.corpus.chunks import call_apart, read_chunks
from nmtkit.decoding.bundle import open_bundle
from nmtkit.fast.peak import measured_peak, peak_dtype
from nmtkit.machine import EngineName, EnginePrecision, Machine
from nmtkit.model.cost import update_flops
from nmtkit.model.weights import count_parameters
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.grid import Grid
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import say_faster_ways, setup_of
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


def _beside_peak(
    device: torch.device, dtype: torch.dtype, share: str, measure: Callable[[], Facts]
) -> Facts:
    """Add to what `measure` found the machine, its peak, and the `share` of it that was reached.

    The speed of a shared machine varies, so its peak is measured before and after.
    """
    dtype = peak_dtype(device, dtype)
    before = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # the product took more than a small model
    found = measure()
    peak = max(before, measured_peak(device, PEAK_SECONDS, dtype))
    return {
        **found,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "peak_flops": peak,
        "peak_of": str(dtype).removeprefix("torch."),
        share: found["flops"] / peak,
    }


def speed_grid(
    title: str, speeds: Sequence[Facts], n_labels: int, columns: Mapping[str, str]
) -> Grid:
    """Return a table of speeds on one device.

    Args:
        title: What was measured.
        speeds: A row each.
        n_labels: How many of the first columns hold text.
        columns: How each is written: `{gflops:,.0f}`, `{memory}` or another fact.
    """
    more = [{"gflops": s["flops"] / 1e9, "memory": decimal(s["peak_bytes"])} for s in speeds]
    rows = [
        tuple(column.format(**speed, **words) for column in columns.values())
        for speed, words in zip(speeds, more, strict=True)
    ]
    first = speeds[0]
    on = f", threads: {first['threads']}" if first["device"] == "CPU" else ""
    return Grid.of(f"{title} on {first['device']}{on}", tuple(columns), rows, n_labels)


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


def training_speed(chain: Chain, *, seconds: float) -> Facts:
    """Train for about `seconds` after a few untimed steps, then profile one more; keep nothing.

    The text is the recipe's own if it is prepared here, and made up otherwise.
    """
    group = Group(0, 1, chain.machine.torch_device())
    setup = setup_of(chain, group)
    say_faster_ways(chain, setup)
    way, _ = setup.acceleration.steps()[-1]
    progress.say(
        f"bench: {chain.recipe.name}, {way}: {UNTIMED_STEPS} untimed steps, then {seconds:.0f} s"
    )
    text = text_of(chain)
    n_rows = chain.recipe.model.rows_for(text.n_tokens)

    def measure() -> Facts:
        begin = time.perf_counter()
        trainer = setup.trainer(text.pairs, n_rows)
        coming = _begun(trainer)
        started = {"start_seconds": time.perf_counter() - begin}
        return {**started, **_train(trainer, coming, text, n_rows, seconds)}

    with enough_memory(group.device, setup.max_tokens):
        speed = _beside_peak(group.device, setup.acceleration.dtype, "mfu", measure)
    return {
        "recipe": chain.recipe.name,
        "way": way,
        "text": "made up" if text.is_made_up else "the recipe's",
        "n_parameters": count_parameters(chain.recipe.model, n_rows).total,
        **speed,
    }


def _begun(trainer: Trainer) -> Iterator[Work]:
    """Make the untimed steps, and return the work of those that follow."""
    trainer.rehearse(1)
    coming = trainer.coming()
    for work in islice(coming, UNTIMED_STEPS):
        trainer.step(work)
    return coming


def _train(
    trainer: Trainer, coming: Iterator[Work], text: TrialText, n_rows: int, seconds: float
) -> Facts:
    """Time steps, including their waiting for work, and profile one."""
    timed, started = [], time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        timed.append(trainer.step(next(coming)))
    device = trainer.group.device
    src, tgt = (sum(getattr(step, f"{side}_tokens") for step in timed) for side in ("src", "tgt"))
    lengths = np.concatenate([text.pairs.src_lengths, text.pairs.tgt_lengths])
    model = trainer.model.config
    return {
        "steps": len(timed),
        "tgt_tokens_per_update": tgt / len(timed),
        "tgt_tokens_per_second": tgt / spent,
        "flops": update_flops(model, n_rows, src, tgt, round(float(lengths.mean()))) / spent,
        "peak_bytes": peak_bytes(device),
        "parts": _parts(trainer, coming, spent / len(timed)),
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
    # Of 8 bits torch has no fast products to compare with.
    is_float32 = how.dtype.computed == EnginePrecision.FLOAT32
    dtype = torch.float32 if is_float32 else torch.bfloat16
    return _beside_peak(device, dtype, "share_of_peak", partial(_translate, how, device))


def _translate(how: Translation, device: torch.device) -> Facts:
    begin = time.perf_counter()
    bundle = open_bundle(how.bundle)
    engine = load_engine(bundle, how.machine, how.engine, how.dtype)
    load_seconds = time.perf_counter() - begin
    sources = [bundle.text.encode(line) for line in how.lines]

    def translate(some: Sequence[Sequence[int]]) -> list[int]:
        """Return the number of tokens of each translation, EOS included."""
        found = engine.translate(some, how.decoding, n_best=1, progress=lambda _: None)
        return [len(hypotheses[0].tokens) + 1 for hypotheses in found]

    translate(sources[:UNTIMED_LINES])
    begin = time.perf_counter()
    lengths = [n for some in read_chunks(sources, how.batch) for n in translate(some)]
    seconds = time.perf_counter() - begin
    model, beam_size = bundle.description, how.decoding.beam_size
    src_lengths = list(map(len, sources))
    flops = translation_flops(model.config, model.n_rows, src_lengths, lengths, beam_size)
    return {
        "engine": engine.name,
        "dtype": how.dtype,
        "beam_size": beam_size,
        "batch": how.batch,
        "sentences": len(sources),
        "sentences_per_second": len(sources) / seconds,
        "tokens_per_second": sum(lengths) / seconds,
        "flops": flops / seconds,
        "peak_bytes": peak_bytes(device),
        "load_seconds": load_seconds,
    }


def translation_flops(
    config: ModelConfig,
    n_rows: int,
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    beam_size: int,
) -> float:
    """Return the FLOPs of a beam search that takes one step for each token of its best hypothesis.

    Args:
        config: The model.
        n_rows: Number of rows of its output matrix.
        src_lengths: Number of tokens of each source, EOS included.
        tgt_lengths: Number of tokens of each best hypothesis, EOS included.
        beam_size: Number of beams, of which the first step has only one.
    """
    weights = count_parameters(config, n_rows)
    per_pair_of_tokens = 2 * config.n_layers * config.n_heads * (config.d_k + config.d_v)
    total = 0.0
    for n_src, n_tgt in zip(src_lengths, tgt_lengths, strict=True):
        n_tokens = 1 + (n_tgt - 1) * beam_size  # of all beams
        total += 2 * (weights.encoder + weights.memory) * n_src
        total += 2 * (weights.decoder + weights.output) * n_tokens
        total += per_pair_of_tokens * (n_src**2 + n_tokens * (n_src + n_tgt / 2))
    return total
