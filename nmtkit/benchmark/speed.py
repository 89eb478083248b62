"""How fast this machine trains and translates."""

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.filesize import decimal

from nmtkit.benchmark.trial import text_of
from nmtkit.config.recipe import DecodingConfig
from nmtkit.config.settings import EngineName, EnginePrecision, Settings
from nmtkit.corpus.chunks import call_apart
from nmtkit.decoding.bundle import open_bundle
from nmtkit.fast.peak import measured_peak, peak_dtype
from nmtkit.model.flops import update_flops
from nmtkit.reporting.grid import Grid
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.train import setup_of
from nmtkit.training.distributed import Group
from nmtkit.training.setup import enough_memory, start_trainer
from nmtkit.translator import load_engine
from nmtkit.utils import progress
from nmtkit.utils.hardware import device_name

Facts = dict[str, Any]
Item = TypeVar("Item")

PEAK_SECONDS = 1.0
UNTIMED_STEPS = 2  # the first steps, which also set up what later ones use
UNTIMED_LINES = 16
STATUS = Path("/proc/self/status")


def apart(measure: Callable[[Item], Facts], item: Item, *, if_killed: str) -> Facts:
    """Return what `measure` finds of `item` in a new process, where memory has no peak yet."""
    quietly = partial(_measured, measure, is_quiet=progress.console.quiet)
    return call_apart(quietly, item, if_killed=if_killed)


def _measured(measure: Callable[[Item], Facts], item: Item, *, is_quiet: bool) -> Facts:
    progress.console.quiet = is_quiet
    return measure(item)


def speed_grid(title: str, speeds: Sequence[Facts], columns: Mapping[str, str]) -> Grid:
    """Return a table of speeds on one device; a column is written as in `{mfu:.1%}`."""
    rows = [
        tuple(
            column.format(**speed, memory=decimal(speed["peak_bytes"]))
            for column in columns.values()
        )
        for speed in speeds
    ]
    device, threads = speeds[0]["device"], speeds[0]["threads"]
    on = f"{device}, threads: {threads}" if device == "CPU" else device
    return Grid.of(f"{title} on {on}", tuple(columns), rows, 2)


def _machine(device: torch.device) -> Facts:
    """Return what has computed, and the most memory that this process has had there."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    elif STATUS.exists():  # Linux, whose ru_maxrss includes what the parent had at the start
        status = STATUS.read_text(encoding="utf-8")
        peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
    threads = torch.get_num_threads()
    return {"device": device_name(device), "threads": threads, "peak_bytes": peak}


def training_speed(pipeline: Pipeline, *, seconds: float) -> Facts:
    """Train for about `seconds` on the recipe's text, or on one that is made up; keep nothing."""
    recipe, device = pipeline.recipe, pipeline.settings.torch_device()
    setup, text = setup_of(pipeline, Group(0, 1, device)), text_of(pipeline)
    progress.log(f"bench: {recipe.name}: {seconds:.0f} s after {UNTIMED_STEPS} steps")
    n_rows = recipe.model.rows_for(text.n_tokens)
    dtype = peak_dtype(device, setup.acceleration.dtype)
    peak = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # the product took more than a small model
    with enough_memory(device, setup.max_tokens):
        trainer = start_trainer(setup, text.pairs, n_rows, progress.warn)
        updates = trainer.prepared_updates()
        for _ in range(UNTIMED_STEPS):
            trainer.train_step(next(updates)).wait()
        # As in training, a step is queued before the device has finished the one before it.
        n_steps = src = tgt = 0
        begin = time.perf_counter()
        queued = trainer.train_step(next(updates))
        while time.perf_counter() - begin < seconds:
            following = trainer.train_step(next(updates))
            queued.wait()
            n_steps += 1
            src += queued.prepared.src_tokens
            tgt += queued.prepared.tgt_tokens
            queued = following
        spent = time.perf_counter() - begin
        settings = _machine(device)
    length = float(np.concatenate([text.pairs.src_lengths, text.pairs.tgt_lengths]).mean())
    flops = update_flops(recipe.model, n_rows, src, tgt, round(length)) / spent
    # The speed of a shared machine varies, so its peak is measured before and after.
    peak = max(peak, measured_peak(device, PEAK_SECONDS, dtype))
    return {
        **settings,
        "recipe": recipe.name,
        "way": str(trainer.acceleration),
        "text": "made up" if text.is_made_up else "the recipe's",
        "steps": n_steps,
        "tgt_tokens_per_update": tgt / n_steps,
        "tgt_tokens_per_second": tgt / spent,
        "flops": flops,
        "mfu": flops / peak,
        "peak_flops": peak,
        "peak_of": str(dtype).removeprefix("torch."),
    }


def translation_speed(
    how: tuple[EngineName, EnginePrecision, DecodingConfig],
    folder: Path,
    lines: Sequence[str],
    settings: Settings,
) -> Facts:
    """Translate some lines; loading, tokenizing and a few untimed lines are not counted."""
    name, dtype, decoding = how
    begin = time.perf_counter()
    bundle = open_bundle(folder)
    engine = load_engine([bundle], settings, name, dtype)
    load_seconds = time.perf_counter() - begin
    sources = [bundle.text.encode(line) for line in lines]

    def n_tokens(some: Sequence[Sequence[int]]) -> int:
        """Translate, and count the tokens of the translations, EOS included."""
        found = engine.translate(some, decoding, n_best=1, progress=lambda _: None)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)

    n_tokens(sources[:UNTIMED_LINES])
    begin = time.perf_counter()
    n = n_tokens(sources)
    seconds = time.perf_counter() - begin
    return {
        **_machine(settings.torch_device()),
        "engine": engine.name,
        "dtype": dtype,
        "beam_size": decoding.beam_size,
        "sentences": len(sources),
        "sentences_per_second": len(sources) / seconds,
        "tokens_per_second": n / seconds,
        "load_seconds": load_seconds,
    }
