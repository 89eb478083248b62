"""The speed of training and translation on this machine."""

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.filesize import decimal

from nmtkit.benchmark.trial import trial_text
from nmtkit.config.model import DecodingConfig
from nmtkit.config.settings import EngineName, EnginePrecision, Settings
from nmtkit.corpus.chunks import call_in_process
from nmtkit.decoding.bundle import open_bundle
from nmtkit.fast.peak import measured_peak
from nmtkit.model.flops import update_flops
from nmtkit.rendering.grid import Grid
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import choose_setup, enough_memory, start_trainer
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group
from nmtkit.training.step import Trainer
from nmtkit.translator import load_engine
from nmtkit.utils import progress
from nmtkit.utils.hardware import device_name

SpeedRecord = dict[str, Any]  # ready for JSON
Item = TypeVar("Item")

PEAK_SECONDS = 1.0
UNTIMED_STEPS = 2  # the first steps also set up what later ones use
UNTIMED_LINES = 16
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class TimedSteps:
    """The size and the duration of some steps of training."""

    n_steps: int
    src_tokens: int
    tgt_tokens: int
    seconds: float


@dataclass(frozen=True)
class TranslationSetting:
    """An engine and its settings to measure."""

    engine: EngineName
    dtype: EnginePrecision
    decoding: DecodingConfig


def measure_in_process(
    measure: Callable[[Item], SpeedRecord], item: Item, *, if_killed: str
) -> SpeedRecord:
    """Call `measure(item)` in a new process, whose peak of memory is its own.

    Args:
        measure: A function that can be pickled.
        if_killed: Message of the UserError if the process is killed.
    """
    quietly = partial(_measure, measure, is_quiet=progress.console.quiet)
    return call_in_process(quietly, item, if_killed=if_killed)


def _measure(measure: Callable[[Item], SpeedRecord], item: Item, *, is_quiet: bool) -> SpeedRecord:
    """Call `measure(item)`. The main function of the process.

    Args:
        measure: A function that can be pickled.
        is_quiet: Whether the user passed -q.
    """
    progress.console.quiet = is_quiet
    return measure(item)


def speed_grid(title: str, speeds: Sequence[SpeedRecord], columns: Mapping[str, str]) -> Grid:
    """Return a table of speeds that were measured on one device.

    Args:
        title: The measured task.
        speeds: One measurement for each row.
        columns: Format of the cells by column, such as "{mfu:.1%}".
    """
    rows = []
    for speed in speeds:
        memory = decimal(speed["peak_bytes"])
        cells = [column.format(**speed, memory=memory) for column in columns.values()]
        rows.append(tuple(cells))
    # The speed of a CPU is meaningless without the number of its threads.
    device = speeds[0]["device"]
    if device == "CPU":
        device += f", threads: {speeds[0]['threads']}"
    return Grid.of(f"{title} on {device}", tuple(columns), rows, 2)


def peak_memory(device: torch.device) -> int:
    """Return the maximum number of bytes that this process has used on a device."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.exists():
        # Linux, whose ru_maxrss includes the memory of the parent when this process started.
        status = STATUS.read_text(encoding="utf-8")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _device_record(device: torch.device) -> SpeedRecord:
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "peak_bytes": peak_memory(device),
    }


def time_steps(trainer: Trainer, seconds: float) -> TimedSteps:
    """Train for about `seconds` after some untimed steps, packing of the batches included."""
    updates = trainer.prepared_updates()
    for _ in range(UNTIMED_STEPS):
        trainer.train_step(next(updates)).wait()
    n_steps = src_tokens = tgt_tokens = 0
    previous = None
    begin = time.perf_counter()
    while n_steps == 0 or time.perf_counter() - begin < seconds:
        queued = trainer.train_step(next(updates))
        n_steps += 1
        src_tokens += queued.prepared.src_tokens
        tgt_tokens += queued.prepared.tgt_tokens
        # As in training, a step is queued before the device has finished the one before it.
        if previous is not None:
            previous.wait()
        previous = queued
    queued.wait()
    return TimedSteps(n_steps, src_tokens, tgt_tokens, time.perf_counter() - begin)


def flops_per_second(trainer: Trainer, timed: TimedSteps) -> float:
    """Return the FLOP/s of the matrix products of timed steps."""
    model = trainer.model
    n_rows = len(model.output_matrix)
    length = round(mean_length(trainer.pairs))
    flops = update_flops(model.config, n_rows, timed.src_tokens, timed.tgt_tokens, length)
    return flops / timed.seconds


def mean_length(pairs: Pairs) -> float:
    """Return the mean number of tokens of a sentence, of both sides together."""
    return float(np.concatenate([pairs.src_lengths, pairs.tgt_lengths]).mean())


def training_speed(pipeline: Pipeline, *, seconds: float) -> SpeedRecord:
    """Measure the training of a recipe for about `seconds`, and keep nothing.

    The text is the recipe's own if it is prepared here, and otherwise a generated one.
    """
    recipe = pipeline.recipe
    device = pipeline.settings.torch_device()
    setup = choose_setup(pipeline, Group(0, 1, device))
    text = trial_text(pipeline)
    progress.log(f"bench: {recipe.name}: {seconds:.0f} s after {UNTIMED_STEPS} steps")
    dtype = setup.acceleration.dtype
    peak = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        # The matrices of the peak are larger than a small model.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with enough_memory(device, setup.max_tokens, setup.model.max_positions):
        n_rows = recipe.model.embedding_rows(text.n_tokens)
        trainer = start_trainer(setup, text.pairs, n_rows)
        timed = time_steps(trainer, seconds)
        device_record = _device_record(device)
    flops = flops_per_second(trainer, timed)
    # The speed of a shared machine varies, so its peak is measured before and after.
    peak = max(peak, measured_peak(device, PEAK_SECONDS, dtype))
    return {
        **device_record,
        "recipe": recipe.name,
        "way": str(trainer.setup.acceleration),
        "text": "made up" if text.is_generated else "the recipe's",
        "steps": timed.n_steps,
        "tgt_tokens_per_update": timed.tgt_tokens / timed.n_steps,
        "tgt_tokens_per_second": timed.tgt_tokens / timed.seconds,
        "flops": flops,
        "mfu": flops / peak,
        "peak_flops": peak,
        "peak_of": str(dtype).removeprefix("torch."),
    }


def translation_speed(
    setting: TranslationSetting, folder: Path, lines: Sequence[str], settings: Settings
) -> SpeedRecord:
    """Measure the translation of some lines; tokenization is not part of the time.

    Args:
        setting: The engine, its precision and its beam.
        lines: Source text.
    """
    begin = time.perf_counter()
    bundle = open_bundle(folder)
    engine = load_engine([bundle], settings, setting.engine, setting.dtype)
    load_seconds = time.perf_counter() - begin
    sources = [bundle.text.encode(line) for line in lines]

    def translate(batch: Sequence[Sequence[int]]) -> int:
        """Translate, and return the number of tokens of the translations, EOS included."""
        results = engine.translate(batch, setting.decoding, n_best=1, advance=lambda _: None)
        return sum(len(hypotheses[0].tokens) + 1 for hypotheses in results)

    # The first batch allocates memory and loads kernels: a cost that a long text has only once.
    translate(sources[:UNTIMED_LINES])
    begin = time.perf_counter()
    n_tokens = translate(sources)
    seconds = time.perf_counter() - begin
    return {
        **_device_record(settings.torch_device()),
        "engine": engine.name,
        "dtype": setting.dtype,
        "beam_size": setting.decoding.beam_size,
        "sentences": len(sources),
        "sentences_per_second": len(sources) / seconds,
        "tokens_per_second": n_tokens / seconds,
        "load_seconds": load_seconds,
    }
