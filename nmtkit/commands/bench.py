"""bench: how fast this machine trains a recipe's model, and where a step's time goes."""

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from nmtkit import progress
from nmtkit.corpus.chunks import end_with_parent
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.errors import UserError
from nmtkit.model.cost import PEAK_FLOPS, count_parameters, update_flops
from nmtkit.reporting.facts import TrainingSpeed
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import acceleration_of, most_tokens, open_pairs, trainer_of
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group
from nmtkit.training.made_up import made_up_pairs
from nmtkit.training.metrics import Metrics
from nmtkit.training.profile import time_parts
from nmtkit.training.trainer import Trainer, enough_memory
from nmtkit.training.work import Work

UNTIMED_STEPS = 2  # they also pay for setting up
STATUS = Path("/proc/self/status")
PEAK_SECONDS = 1.0  # of products, of which the fastest is the peak


def bench_training(chain: Chain, seconds: float, *, each_technique: bool) -> list[TrainingSpeed]:
    """Train for about `seconds` after a few untimed steps, then profile one more; keep nothing.

    The text is the recipe's own if it is prepared here, and made up otherwise. If `each_technique`,
    the same is done first without any of those that make a GPU fast, then with one after the other.

    Raises:
        UserError: there is not enough memory.
    """
    # A process of its own: the most memory that one ever had would count for the next recipe too.
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), end_with_parent) as pool:
            return pool.submit(_bench_each, chain, seconds, each_technique).result()
    except BrokenProcessPool:
        raise UserError(
            f"the training of {chain.recipe.name} was killed, perhaps for lack of memory; lower "
            "--max-tokens"
        ) from None


def _bench_each(chain: Chain, seconds: float, each_technique: bool) -> list[TrainingSpeed]:
    group = Group(0, 1, chain.machine.torch_device())
    ways = acceleration_of(chain, group).steps()
    text = _text(chain)
    with enough_memory(group.device, most_tokens(chain, group)):
        return [
            _bench(chain, seconds, way, acceleration, group, text)
            for way, acceleration in (ways if each_technique else ways[-1:])
        ]


def _bench(
    chain: Chain,
    seconds: float,
    way: str,
    acceleration: Acceleration,
    group: Group,
    text: tuple[Pairs, int, str],
) -> TrainingSpeed:
    recipe, (pairs, n_tokens, whose_text) = chain.recipe, text
    progress.say(
        f"bench: {recipe.name}, {way}: {UNTIMED_STEPS} steps untimed, then {seconds:.0f} s"
    )
    peak_before = _peak_flops(group.device)
    _forget_the_last(group.device)
    n_rows = recipe.model.rows_for(n_tokens)
    begin = time.perf_counter()
    trainer = trainer_of(chain, group, pairs, n_rows, acceleration)
    coming = _begun(trainer)
    start_seconds = time.perf_counter() - begin
    timed, spent = _train_for(seconds, trainer, coming)
    src_tokens = sum(metrics.src_tokens for metrics in timed)
    tgt_tokens = sum(metrics.tgt_tokens for metrics in timed)
    length = round(float(np.concatenate([pairs.src_lengths, pairs.tgt_lengths]).mean()))
    flops = update_flops(recipe.model, n_rows, src_tokens, tgt_tokens, length) / spent
    peak_bytes = _peak_bytes(group.device)
    parts = _parts(trainer, coming, spent / len(timed))
    # A shared machine has fast minutes and slow ones: the training saw what lies between the two.
    peak_flops, peak_of = max(peak_before, _peak_flops(group.device))
    return TrainingSpeed(
        recipe=recipe.name,
        way=way,
        device=_name(group.device),
        threads=torch.get_num_threads(),
        text=whose_text,
        n_parameters=count_parameters(recipe.model, n_rows).total,
        steps=len(timed),
        tgt_tokens_per_update=tgt_tokens / len(timed),
        tgt_tokens_per_second=tgt_tokens / spent,
        flops=flops,
        mfu=flops / peak_flops,
        peak_of=peak_of,
        peak_bytes=peak_bytes,
        start_seconds=start_seconds,
        fill=_fill(acceleration, coming),
        parts=parts,
    )


def _begun(trainer: Trainer) -> Iterator[Work]:
    """The work of the steps after the untimed ones."""
    trainer.rehearse(1)
    coming = trainer.coming()
    for work in islice(coming, UNTIMED_STEPS):
        trainer.step(work)
    return coming


def _train_for(
    seconds: float, trainer: Trainer, coming: Iterator[Work]
) -> tuple[list[Metrics], float]:
    """The steps that were made, and the seconds that they took, waiting for work included."""
    timed: list[Metrics] = []
    started = time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds:
        timed.append(trainer.step(next(coming)))
    return timed, spent


def _parts(trainer: Trainer, coming: Iterator[Work], seconds: float) -> dict[str, float]:
    """The share that each part has in a step, of which one takes `seconds`.

    The profiler can't tell what is what in a graph, so that the step is made without it.
    """
    trainer.backward.captured = False
    if trainer.acceleration.captured:
        trainer.step(next(coming))
    parts = time_parts(lambda: trainer.step(next(coming)).seconds, seconds, trainer.group.device)
    return {name: part / sum(parts.values()) for name, part in parts.items()}


def _fill(acceleration: Acceleration, coming: Iterator[Work]) -> float:
    """The share of real tokens in a few updates' rows, or in attention's rectangles."""
    real = places = 0
    for work in islice(coming, 10):
        real += work.src_tokens + work.tgt_tokens
        for _, batch in work.batches:
            for layout in (batch.src_layout, batch.tgt_layout):
                if acceleration.static:
                    places += layout.n_tokens
                else:
                    places += sum(each.mask.numel() for each in layout.rectangles)
    return real / places


def _text(chain: Chain) -> tuple[Pairs, int, str]:
    """Pairs to train on, the size of their vocabulary, and what they are."""
    if prepared := chain.find("prepare"):
        corpus = PreparedCorpus(prepared)
        return open_pairs(corpus, "train"), corpus.counts().vocabulary, "the recipe's"
    n_tokens = chain.expected_vocabulary()
    return made_up_pairs(n_tokens, chain.recipe.model.max_positions), n_tokens, "made up"


def _peak_flops(device: torch.device) -> tuple[float, str]:
    """The FLOP/s that MFU is a share of: the device's known ones, or those of a product here."""
    if device.type == "cuda":
        for name, peak in PEAK_FLOPS.items():
            if torch.cuda.get_device_name(device).startswith(name):
                return peak, "bfloat16 products"
    width = 8_192 if device.type == "cuda" else 2_048
    a, b = (torch.randn(width, width, device=device) for _ in "ab")
    fastest, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < PEAK_SECONDS:
        begin = time.perf_counter()
        (a @ b)[0, 0].item()
        fastest = min(fastest, time.perf_counter() - begin)
    return (
        2 * width**3 / fastest,
        f"a float32 product here, {2e-9 * width**3 / fastest:,.0f} GFLOP/s",
    )


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _forget_the_last(device: torch.device) -> None:
    """Let the next measurement begin with an empty memory and nothing compiled."""
    if device.type == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts in ru_maxrss also what the parent of a process had when it started it.
    if STATUS.exists():
        lines = STATUS.read_text(encoding="utf-8").split("\n")
        (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
        return int(kib) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
