"""One training step (section 5): the gradient of an update, then a step of Adam."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, starmap
from math import ceil
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nmtkit.errors import is_out_of_memory
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import Capacity
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import TrainingConfig
from nmtkit.training.acceleration import Acceleration, Backward
from nmtkit.training.batches import Batch, Ints, Pairs, Update, micro_batches, pack, updates
from nmtkit.training.checkpoint import BEGINNING, Progress
from nmtkit.training.distributed import GradientSums, Group
from nmtkit.training.metrics import Metrics
from nmtkit.training.schedule import learning_rate

FIRST_OCTAVE = 16  # of constant shapes; updates of shorter sentences are few
TILE = 128  # tokens of a sentence that attention on a GPU computes at a time
LIKE = 0.45  # least mean of like lengths over the octave: a half on the longer side
PROBED_UPDATES = 5_000  # bounds the planning; later updates are rarely much harder

# Work, learning rate, and numbers on their way to the host, with what tells that they are there.
Queued = tuple["Work", float, Tensor, torch.cuda.Event | None]
Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Work:
    """One process's share of an update, packed on its device."""

    step: int  # of the optimizer, from 1
    update: Update
    src_tokens: int  # of all processes
    tgt_tokens: int
    batches: list[tuple[int, Batch]]  # each with its index among those of all processes


class Trainer:
    """A model, its optimizer and its training corpus, in one process of a group."""

    def __init__(
        self,
        model: Transformer,
        pairs: Pairs,
        config: TrainingConfig,
        group: Group,
        acceleration: Acceleration,
        max_tokens: int,
        shared: bool = False,
    ) -> None:
        """Train `model`, as it is; `max_tokens` is the maximum per side of a micro-batch.

        If `shared`, each process gets as many of an update, which then depend on their number.
        """
        self.model, self.pairs, self.config, self.group = model, pairs, config, group
        self.shared = shared
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=True,
        )
        self._gradients = GradientSums(model, group)
        self.n_ahead = 0 if group.device.type == "cpu" else 1  # steps that are queued meanwhile
        drawn = pairs.drawn(model.config.max_positions, seed=config.seed, epoch=0)
        is_random = config.batches == "random" and len(drawn)
        self._mean_length = float(pairs.tgt_lengths[drawn].mean()) if is_random else 0.0
        self._compute_by(acceleration, max_tokens)

    def _compute_by(self, acceleration: Acceleration, max_tokens: int) -> None:
        if acceleration.compiled:
            torch.compiler.reset()  # code for earlier shapes would count against its limit
        self.acceleration, self.max_tokens = acceleration, max_tokens
        accelerate(self.model, flash=acceleration.static)
        self.backward = Backward(self.model, self.config.label_smoothing, acceleration)

    def updates(self, after: Progress = BEGINNING) -> Iterator[Update]:
        return updates(
            self.pairs,
            seed=self.config.seed,
            max_length=self.model.config.max_positions,
            src_tokens=self.config.src_tokens_per_update,
            tgt_tokens=self.config.tgt_tokens_per_update,
            like_lengths=self.config.batches == "like-length",
            epoch=after.epoch,
            index=after.index,
        )

    def rehearse(
        self,
        n_steps: int,
        after: Progress = BEGINNING,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Try the hardest micro-batch of the next `n_steps`, and do with less where it fails.

        Where memory is short on one device, all of the group halve their micro-batches, down to
        single pairs. After another failure, all do without their last technique.

        Raises:
            RuntimeError: It fails on this device, with nothing left to do without.
        """
        asked, why = self._way, "another process"
        while hardest := self._hardest(n_steps, after):
            error = self._failure(hardest)
            is_short = self.group.any(error is not None and is_out_of_memory(error))
            if not self.group.any(error is not None):
                break
            how = self.acceleration if is_short else self.acceleration.simpler()
            if how is None or (is_short and max(map(len, hardest.values())) == 1):
                if error is not None:
                    raise error
                return  # another process says why it ends
            if error is not None:
                why = f"{type(error).__name__}: {error}".split("\n")[0]
            del error  # and what its frames hold
            self._compute_by(how, self.max_tokens // 2 if is_short else self.max_tokens)
        if self._way != asked:
            warn(f"train: {asked} failed ({why}); goes on with {self._way}")

    @property
    def _way(self) -> str:
        return f"{self.acceleration}, {self.max_tokens:,} tokens a side of a micro-batch"

    def _hardest(self, n_steps: int, after: Progress) -> dict[Capacity | None, Ints]:
        """Return the pairs of the hardest micro-batch of the next `n_steps`, of each capacity."""
        squares = np.maximum(self.pairs.src_lengths, self.pairs.tgt_lengths).astype(np.float64) ** 2
        hardest: dict[Capacity | None, Ints] = {}
        for update in islice(self.updates(after), min(n_steps, PROBED_UPDATES)):
            groups, capacity = self._cut(update.pairs)
            groups.append(hardest.get(capacity, groups[0]))
            hardest[capacity] = max(groups, key=lambda group: squares[group].sum())  # of attention
        return hardest

    def _failure(self, hardest: dict[Capacity | None, Ints]) -> RuntimeError | MemoryError | None:
        """Return how a pass over such micro-batches fails, if it does; random numbers stay."""
        device = self.group.device
        self.model.train()
        # Adam's moments must fit too, and do not exist before its first step.
        weights = () if self.optimizer.state else self.model.parameters()
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                _moments = [each.new_empty(2, *each.shape) for each in weights]
                packed = (pack(self.pairs, group, which) for which, group in hardest.items())
                self.backward.rehearse([batch.to(device) for batch in packed])
        except (RuntimeError, MemoryError) as error:
            return error
        return None

    def coming(self, n_steps: int | None = None, after: Progress = BEGINNING) -> Iterator[Work]:
        """Yield the work of the next `n_steps` (None: without end), for a GPU packed ahead."""
        numbered = enumerate(islice(self.updates(after), n_steps), start=after.step + 1)
        # A second thread would have OpenMP threads of its own, which slow down those of a step.
        if self.group.device.type == "cpu":
            return starmap(self.work_of, numbered)
        return ahead(numbered, lambda each: self.work_of(*each))

    def work_of(self, step: int, update: Update) -> Work:
        """Pack this process's share of `update`."""
        pairs, group = self.pairs, self.group
        groups, capacity = self._cut(update.pairs)
        batches = [
            (micro_step, pack(pairs, groups[micro_step], capacity).to(group.device))
            for micro_step in range(group.rank, len(groups), group.size)
        ]
        src_tokens, tgt_tokens = (
            int(lengths[update.pairs].sum()) for lengths in (pairs.src_lengths, pairs.tgt_lengths)
        )
        return Work(step, update, src_tokens, tgt_tokens, batches)

    def _cut(self, chosen: Ints) -> tuple[list[Ints], Capacity | None]:
        """Return the micro-batches of an update, of all processes, and the capacity of each."""
        capacity, factor = None, self.group.size if self.shared else 1
        if self.acceleration.static:
            sides = self.pairs.src_lengths, self.pairs.tgt_lengths
            largest = self.model.config.max_positions
            longest = max(int(lengths[chosen].max()) for lengths in sides)
            octave = min(max(FIRST_OCTAVE, 1 << (longest - 1).bit_length()), largest)
            whole = max(self.config.src_tokens_per_update, self.config.tgt_tokens_per_update)
            mean_length = self._mean_length or LIKE * octave
            n = ceil(whole / self.max_tokens)
            share = whole / (n + -n % factor)
            room = ceil(share + min(octave, 3 * mean_length))  # since no cut is that even
            longest = max(octave, min(TILE, largest))
            most = max(min(self.max_tokens, room), longest)
            capacity = Capacity.of(most, longest, mean_length)
        return micro_batches(self.pairs, chosen, self.max_tokens, capacity, factor), capacity

    def step(self, work: Work) -> Metrics:
        return next(self.steps([work], is_due=lambda _: True))[1]

    def steps(
        self,
        coming: Iterable[Work],
        is_due: Callable[[int], bool],
        ask: Callable[[], int] = lambda: 0,
    ) -> Iterator[tuple[Work, Metrics, int | None]]:
        """Do a step for each work; yield its metrics and the sum of what processes `ask` for.

        A GPU never waits for the host, because the next step is queued before one is yielded. The
        model is newer than the metrics then, and None in place of the sum says so. Only a step that
        `is_due`, for all processes, or at which something is asked for, is waited for.
        """
        begin, queue, asked = time.perf_counter(), deque[Queued](), 0
        for coming_work in coming:
            queue.append(self._queued(coming_work, ask))
            while len(queue) > self.n_ahead or (queue and (asked or is_due(coming_work.step))):
                work, rate, numbers, arrival = queue.popleft()
                if arrival is not None:
                    arrival.synchronize()
                loss, nll, asked_now, norm, is_bad = numbers.tolist()
                end = time.perf_counter()
                metrics = Metrics(
                    work.step,
                    work.update.epoch,
                    loss / work.tgt_tokens,
                    nll / work.tgt_tokens,
                    norm,
                    bool(is_bad),
                    rate,
                    work.src_tokens,
                    work.tgt_tokens,
                    end - begin,
                )
                asked = max(asked, int(asked_now))
                yield work, metrics, None if queue else asked
                if not queue:  # what was done in between is no part of a step
                    end, asked = time.perf_counter(), 0
                begin = end

    def _queued(self, work: Work, ask: Callable[[], int]) -> Queued:
        """Queue a step: the gradient of the update's loss per target token, then Adam."""
        rate = learning_rate(
            work.step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        self.optimizer.param_groups[0]["lr"] = rate
        self.model.train()
        self._gradients.clear()
        # (3,): smoothed loss and negative log-likelihood, sums over tokens; what is asked for
        sums = torch.zeros(3, dtype=torch.float64, device=self.group.device)
        for micro_step, batch in work.batches:
            # Dropout is a function of seed and step, so that resuming needs no random state.
            mixed = np.random.SeedSequence([self.config.seed, work.step, micro_step])
            torch.manual_seed(int(mixed.generate_state(1, np.uint64)[0]) % 2**63)
            sums[:2] += self.backward.add(batch, 1 / work.tgt_tokens)
        sums[2].fill_(ask())
        self._gradients.finish()
        self.group.sum_(sums)
        norm = self._gradients.norm()
        # Adam's own switch, made for mixed precision: if it is 1, weights, moments and the count of
        # Adam's steps stay as they are. Deciding on the device avoids waiting for the host.
        is_bad = ~(norm.isfinite() & sums.isfinite().all())
        self.optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        numbers = torch.stack([*sums, norm.double(), is_bad]).to("cpu", non_blocking=True)
        is_cuda = self.group.device.type == "cuda"
        arrival = torch.cuda.current_stream(sums.device).record_event() if is_cuda else None
        return work, rate, numbers, arrival


def ahead(items: Iterable[Item], make: Callable[[Item], Made], n_ahead: int = 2) -> Iterator[Made]:
    """Yield `make(item)` for each item in order, computed in a thread `n_ahead` items early."""
    coming: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        for item in items:
            coming.append(pool.submit(make, item))
            if len(coming) > n_ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
