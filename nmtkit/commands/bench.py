"""bench: how fast this machine trains a recipe's model, and where a step's time goes."""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from nmtkit import artifacts, progress
from nmtkit.corpus.chunks import end_with_parent
from nmtkit.errors import UserError
from nmtkit.model.cost import PEAK_FLOPS, update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.reporting.facts import TrainingSpeed
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import acceleration_of, most_tokens, open_pairs
from nmtkit.symbols import SPECIALS
from nmtkit.training.acceleration import Acceleration, Backward
from nmtkit.training.batches import Ints, Pairs, updates
from nmtkit.training.distributed import GradientSums, Group
from nmtkit.training.loop import Metrics, enough_memory, train_step
from nmtkit.training.profile import time_parts
from nmtkit.training.work import ahead, work_of

UNTIMED_STEPS = 2  # they also pay for setting up
STATUS = Path("/proc/self/status")
PEAK_SECONDS = 1.0  # of products, of which the fastest is the peak
# Made-up text, for speed alone: about the lengths of WMT14 English-German in subwords. In news the
# logarithm of target over source length has a standard deviation of 0.16.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
RATIO_SPREAD = 0.16
MADE_UP_PAIRS = 100_000


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
            f"the training of {chain.recipe.name} was killed, perhaps for want of memory; lower "
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
    begin = time.perf_counter()
    n_rows = recipe.model.rows_for(n_tokens)
    trial = _Trial(chain, pairs, n_rows, group, acceleration)
    for _ in range(UNTIMED_STEPS):
        trial.step()
    started = time.perf_counter()
    timed: list[Metrics] = []
    while time.perf_counter() - started < seconds:
        timed.append(trial.step())
    spent = time.perf_counter() - started
    src_tokens, tgt_tokens = (
        sum(getattr(step, name) for step in timed) for name in ("src_tokens", "tgt_tokens")
    )
    length = round(float(np.concatenate([pairs.src_lengths, pairs.tgt_lengths]).mean()))
    flops = update_flops(recipe.model, n_rows, src_tokens, tgt_tokens, length) / spent
    peak_bytes = _peak_bytes(group.device)
    parts = trial.parts(spent / len(timed))
    # A shared machine has fast minutes and slow ones: the training saw what lies between the two.
    peak_flops, peak_of = max(peak_before, _peak_flops(group.device))
    return TrainingSpeed(
        recipe=recipe.name,
        way=way,
        device=_name(group.device),
        threads=torch.get_num_threads(),
        text=whose_text,
        n_parameters=trial.n_parameters,
        steps=len(timed),
        tgt_tokens_per_update=tgt_tokens / len(timed),
        tgt_tokens_per_second=tgt_tokens / spent,
        flops=flops,
        mfu=flops / peak_flops,
        peak_of=peak_of,
        peak_bytes=peak_bytes,
        start_seconds=started - begin,
        fill=trial.fill(),
        parts={name: part / sum(parts.values()) for name, part in parts.items()},
    )


class _Trial:
    """A training of which nothing is kept."""

    def __init__(
        self, chain: Chain, pairs: Pairs, n_rows: int, group: Group, acceleration: Acceleration
    ) -> None:
        self._config, self._acceleration = chain.recipe.training, acceleration
        torch.manual_seed(self._config.seed)
        model = Transformer(chain.recipe.model, n_rows, acceleration.dtype).to(group.device)
        self._model = model
        self._gradients = GradientSums(model, group)
        self._backward = Backward(model, self._config.label_smoothing, acceleration)
        self._optimizer = torch.optim.Adam(model.parameters(), fused=True)
        max_tokens = most_tokens(chain, group)
        coming = updates(
            pairs,
            seed=self._config.seed,
            max_length=model.config.max_positions,
            src_tokens=self._config.src_tokens_per_update,
            tgt_tokens=self._config.tgt_tokens_per_update,
            like_lengths=self._config.batches == "like-length",
        )
        capacity = acceleration.capacity(max_tokens, model.config.max_positions)
        make = partial(work_of, pairs, group, max_tokens=max_tokens, capacity=capacity)
        model.train()
        _, batch = make(next(coming)).batches[0]
        self._backward.add(batch, 0.0)  # as training begins: it compiles, and captures the graph
        self._work = ahead(coming, make)
        self._n_steps = 0
        self.n_parameters = sum(parameter.numel() for parameter in model.parameters())

    def step(self) -> Metrics:
        """Make an update."""
        self._n_steps += 1
        return train_step(
            self._model,
            self._optimizer,
            self._gradients,
            self._backward,
            next(self._work),
            self._config,
            step=self._n_steps,
        )

    def parts(self, seconds: float) -> dict[str, float]:
        """The seconds of each part of a step, of which one takes `seconds`.

        The profiler can't tell what is what in a graph, so that the step is made without it.
        """
        self._backward.captured = False
        if self._acceleration.captured:
            self.step()
        return time_parts(lambda: self.step().seconds, seconds, self._gradients.group.device)

    def fill(self) -> float:
        """The share of real tokens in a few updates' rows, or in attention's rectangles."""
        real = places = 0
        for work in islice(self._work, 10):
            real += work.src_tokens + work.tgt_tokens
            for _, batch in work.batches:
                for layout in (batch.src_layout, batch.tgt_layout):
                    if self._acceleration.static:
                        places += layout.n_tokens
                    else:
                        places += sum(each.mask.numel() for each in layout.rectangles)
        return real / places


def _text(chain: Chain) -> tuple[Pairs, int, str]:
    """Pairs to train on, the size of their vocabulary, and what they are."""
    if prepared := chain.find("prepare"):
        counts = artifacts.read_json(prepared.path / "counts.json")
        return open_pairs(prepared.path, "train"), int(counts["vocabulary"]), "the recipe's"
    n_tokens = chain.recipe.expected_vocabulary()
    generator = np.random.default_rng(0)
    sizes = generator.gamma(LENGTH_SPREAD**-2, LENGTH_SPREAD**2, MADE_UP_PAIRS)
    sides = []
    for mean in MEAN_LENGTHS:
        drawn = mean * sizes * generator.lognormal(0.0, RATIO_SPREAD / 2**0.5, MADE_UP_PAIRS)
        lengths: Ints = drawn.round().astype(np.int64).clip(1, chain.recipe.model.max_positions)
        offsets = np.concatenate([np.zeros(1, np.int64), lengths.cumsum()])
        ids = generator.integers(len(SPECIALS), n_tokens, offsets[-1]).astype(np.uint32)
        sides += [ids, offsets]
    return Pairs(*sides), n_tokens, "made up"


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
