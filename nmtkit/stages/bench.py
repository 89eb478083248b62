"""bench: how fast this machine trains a recipe's model, and where a step's time goes."""

import resource
import time
from itertools import islice

import numpy as np
import torch

from nmtkit import artifacts, progress
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import Recipe
from nmtkit.reporting.cost import PEAK_FLOPS, update_flops
from nmtkit.reporting.facts import TrainingSpeed
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import open_pairs
from nmtkit.symbols import SPECIALS
from nmtkit.training.batches import Ints, Pairs, micro_batches, pack, updates
from nmtkit.training.distributed import GradientSums, Group
from nmtkit.training.loop import Metrics, train_step
from nmtkit.training.profile import time_parts

UNTIMED_STEPS = 2  # they also pay for setting up
# Made-up text, for speed alone: about the lengths of WMT14 English-German in subwords.
MEAN_LENGTHS, LENGTH_SPREAD = (29, 31), 0.6  # standard deviation over mean
MADE_UP_PAIRS = 100_000


def bench_training(chain: Chain, seconds: float) -> TrainingSpeed:
    """Train for about `seconds` after a few untimed steps, then profile one more; keep nothing.

    The text is the recipe's own if it is prepared here, and made up otherwise.
    """
    recipe, device = chain.recipe, chain.machine.torch_device()
    pairs, n_tokens, text = _text(chain)
    n_rows = recipe.model.rows_for(n_tokens)
    peak_flops, peak_of = _peak_flops(device)
    max_tokens = chain.machine.tokens_per_micro_batch(device)
    torch.manual_seed(recipe.training.seed)
    model = Transformer(recipe.model, n_rows).to(device)
    trial = _Trial(recipe, model, pairs, max_tokens, device)
    progress.say(f"bench: {recipe.name}, {UNTIMED_STEPS} steps untimed, then {seconds:.0f} s")
    for _ in range(UNTIMED_STEPS):
        trial.step()
    timed: list[Metrics] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        timed.append(trial.step())
    spent = time.perf_counter() - begin
    parts = time_parts(lambda: trial.step().seconds, device)
    src_tokens, tgt_tokens = (
        sum(getattr(step, name) for step in timed) for name in ("src_tokens", "tgt_tokens")
    )
    length = round(float(np.concatenate([pairs.src_lengths, pairs.tgt_lengths]).mean()))
    flops = update_flops(recipe.model, n_rows, src_tokens, tgt_tokens, length) / spent
    return TrainingSpeed(
        recipe=recipe.name,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        threads=torch.get_num_threads(),
        text=text,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=len(timed),
        tgt_tokens_per_update=tgt_tokens / len(timed),
        tgt_tokens_per_second=tgt_tokens / spent,
        flops=flops,
        mfu=flops / peak_flops,
        peak_of=peak_of,
        peak_bytes=_peak_bytes(device),
        fill=trial.fill(),
        parts={name: part / sum(parts.values()) for name, part in parts.items()},
    )


class _Trial:
    """A training of which nothing is kept."""

    def __init__(
        self,
        recipe: Recipe,
        model: Transformer,
        pairs: Pairs,
        max_tokens: int,
        device: torch.device,
    ) -> None:
        self._config, self._model, self._pairs = recipe.training, model, pairs
        self._max_tokens = max_tokens
        self._gradients = GradientSums(model, Group(0, 1, device))
        self._optimizer = torch.optim.Adam(model.parameters(), fused=True)
        self._updates = updates(
            pairs,
            seed=self._config.seed,
            max_length=model.config.max_positions,
            src_tokens=self._config.src_tokens_per_update,
            tgt_tokens=self._config.tgt_tokens_per_update,
        )
        self._n_steps = 0

    def step(self) -> Metrics:
        """Make an update."""
        self._n_steps += 1
        return train_step(
            self._model,
            self._optimizer,
            self._gradients,
            self._pairs,
            next(self._updates),
            self._config,
            step=self._n_steps,
            max_tokens=self._max_tokens,
        )

    def fill(self) -> float:
        """The share of real tokens in the rectangles that attention pads a few updates to."""
        real = places = 0
        for update in islice(self._updates, 10):
            for chosen in micro_batches(self._pairs, update.pairs, self._max_tokens):
                batch = pack(self._pairs, chosen)
                for layout in (batch.src_layout, batch.tgt_layout):
                    real += layout.n_tokens
                    places += sum(each.mask.numel() for each in layout.rectangles)
        return real / places


def _text(chain: Chain) -> tuple[Pairs, int, str]:
    """Pairs to train on, the size of their vocabulary, and what they are."""
    if prepared := chain.find("prepare"):
        counts = artifacts.read_json(prepared.path / "counts.json")
        return open_pairs(prepared.path, "train"), int(counts["vocabulary"]), "the recipe's"
    n_tokens = chain.recipe.expected_vocabulary()
    generator = np.random.default_rng(0)
    sides = []
    for mean in MEAN_LENGTHS:
        spread = LENGTH_SPREAD**2
        drawn = generator.gamma(1 / spread, mean * spread, MADE_UP_PAIRS)
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
    fastest = float("inf")
    for _ in range(4):
        begin = time.perf_counter()
        (a @ b)[0, 0].item()
        fastest = min(fastest, time.perf_counter() - begin)
    return (
        2 * width**3 / fastest,
        f"a float32 product here, {2e-9 * width**3 / fastest:,.0f} GFLOP/s",
    )


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
