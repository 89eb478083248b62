"""One training step: the gradient of an update, then a step of Adam (section 5.3)."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from nmtkit.config.model import ModelConfig
from nmtkit.config.recipe import TrainingConfig
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.batches import Pairs, Update, updates
from nmtkit.training.bins import BinShape, choose_shapes, fill_bins, send, split_into_bins
from nmtkit.training.checkpoint import BEGINNING, Progress
from nmtkit.training.distributed import Group
from nmtkit.training.gradients import Gradients
from nmtkit.training.metrics import Metrics
from nmtkit.training.micro_batches import Batch, micro_batches, pack

SAMPLED_UPDATES = 50  # the first ones, whose lengths decide the shapes of micro-batches
N_PREFETCHED = 2  # updates that are prepared while the GPU computes
# Of the loss scale for float16
INITIAL_FACTOR = 2.0**16
GROWTH_STEPS = 2_000  # finite steps in a row after which the factor is doubled

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PreparedUpdate:
    """One process's share of an update, on its device."""

    step: int  # of the optimizer, from 1
    update: Update
    src_tokens: int  # of the whole update, in all processes
    tgt_tokens: int
    # Packed sentence pairs or filled bins, with their numbers in the whole update.
    micro_batches: list[tuple[int, Batch | Tensor]]


@dataclass(frozen=True)
class StepResult:
    """The result of a step, of all processes together."""

    metrics: Metrics  # without the duration: the training loop measures it
    loss_scale: float  # after the step
    n_finite: int  # steps in a row since the loss scale changed
    save_requests: int  # number of processes that ask for a checkpoint
    stop_requests: int  # number of processes that ask to stop


@dataclass(frozen=True)
class QueuedStep:
    """A step that the device may still be computing."""

    prepared: PreparedUpdate
    learning_rate: float
    numbers: Tensor  # (9,) float64 on the host
    arrival: torch.cuda.Event | None  # occurs when the numbers have arrived; None on a CPU

    def wait(self) -> StepResult:
        """Wait for the device, and return the result of the step."""
        if self.arrival is not None:
            self.arrival.synchronize()
        loss, nll, n_save, n_stop, norm, is_finite, is_overflow, loss_scale, n_finite = (
            self.numbers.tolist()
        )
        prepared = self.prepared
        # The sums are divided on the host, where it costs nothing.
        metrics = Metrics(
            step=prepared.step,
            epoch=prepared.update.epoch,
            loss=loss / prepared.tgt_tokens,
            nll=nll / prepared.tgt_tokens,
            gradient_norm=norm,
            skipped=not is_finite and not is_overflow,
            learning_rate=self.learning_rate,
            src_tokens=prepared.src_tokens,
            tgt_tokens=prepared.tgt_tokens,
            seconds=0.0,
            overflow=bool(is_overflow),
        )
        return StepResult(metrics, loss_scale, int(n_finite), int(n_save), int(n_stop))


@dataclass(frozen=True)
class Setup:
    """Everything that a process of a group needs to train, except for text and weights."""

    model: ModelConfig
    training: TrainingConfig
    group: Group
    acceleration: Acceleration
    max_tokens: int  # per side of a micro-batch
    # The number of micro-batches of an update is a multiple of this: of the number of processes, so
    # that all of them get the same number; or 1, so that dropout does not depend on it.
    multiple_of: int = 1
    # Micro-batches are dense bins of a few shapes (for GPUs), instead of packed sequences of any
    # length (for CPUs).
    use_bins: bool = False


class Trainer:
    """A model, its optimizer and its training corpus, in one process of a group."""

    def __init__(self, model: Transformer, pairs: Pairs, setup: Setup) -> None:
        """Train `model` from its present weights.

        Args:
            model: The model, on the device of the group. It is accelerated here.
            pairs: The training corpus.
            setup: Configuration, processes, precision and size of micro-batches.
        """
        self.model = accelerate(model)
        self.pairs = pairs
        self.setup = setup
        self.config = config = setup.training
        self.group = group = setup.group
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            decoupled_weight_decay=True,
            fused=True,
        )
        self.gradients = Gradients(
            model,
            config.label_smoothing,
            setup.acceleration.level,
            is_flat=setup.use_bins or group.size > 1,
        )
        self.loss_scale = LossScale(setup.acceleration.dtype, group.device)
        # On a GPU, a step is queued before the numbers of the step before it are read: the device
        # never waits for the host.
        self.max_queued = 0 if group.device.type == "cpu" else 1
        self.bin_shapes: list[BinShape] = []  # of bins, the largest first
        # All processes sample the same updates, and find the same shapes.
        if setup.use_bins:
            sample = [update.pairs for update in islice(self.updates(), SAMPLED_UPDATES)]
            max_length = model.config.max_positions
            self.bin_shapes = choose_shapes(
                pairs, sample, max_length, setup.max_tokens, setup.multiple_of
            )

    def updates(self, after: Progress = BEGINNING) -> Iterator[Update]:
        """Yield the updates that follow `after`, without end."""
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

    def prepared_updates(
        self, n_steps: int | None = None, after: Progress = BEGINNING
    ) -> Iterator[PreparedUpdate]:
        """Yield this process's share of the next `n_steps` updates (None: without end)."""

        def prepare(numbered: tuple[int, Update]) -> PreparedUpdate:
            step, update = numbered
            return self.prepare(update, step)

        numbered_updates = enumerate(islice(self.updates(after), n_steps), start=after.step + 1)
        # On a CPU, the OpenMP threads of a second thread would slow down the step.
        if self.group.device.type == "cpu":
            yield from map(prepare, numbered_updates)
        else:
            yield from prefetch(numbered_updates, prepare)

    def prepare(self, update: Update, step: int) -> PreparedUpdate:
        """Split an update into micro-batches, and move those of this process to its device.

        Args:
            update: The sentence pairs of the update, the same in all processes.
            step: Number of the step, from 1.
        """
        # Micro-batches are dealt out in turn: process r of n takes r, r + n, r + 2n ..
        share: list[tuple[int, Batch | Tensor]] = []
        device = self.group.device
        if self.bin_shapes:
            shape, parts = split_into_bins(
                self.pairs, update.pairs, self.bin_shapes, self.setup.multiple_of
            )
            for index in range(self.group.rank, len(parts), self.group.size):
                share.append((index, send(fill_bins(self.pairs, parts[index], shape), device)))
        else:
            groups = micro_batches(
                self.pairs, update.pairs, self.setup.max_tokens, self.setup.multiple_of
            )
            for index in range(self.group.rank, len(groups), self.group.size):
                share.append((index, pack(self.pairs, groups[index], device)))
        src_tokens = int(self.pairs.src_lengths[update.pairs].sum())
        tgt_tokens = int(self.pairs.tgt_lengths[update.pairs].sum())
        return PreparedUpdate(step, update, src_tokens, tgt_tokens, share)

    def train_step(
        self, prepared: PreparedUpdate, *, save: bool = False, stop: bool = False
    ) -> QueuedStep:
        """Run one optimizer step on this process's share of an update (section 5.3).

        On a GPU, the step is only queued: nothing here waits for the device.

        Args:
            prepared: This process's share of the update.
            save: Ask all processes to save a checkpoint after this step or the next one.
            stop: Ask all processes to save and stop.
        """
        step = prepared.step
        rate = learning_rate(
            step,
            d_model=self.model.config.d_model,
            warmup_steps=self.config.warmup_steps,
            scale=self.config.learning_rate_scale,
        )
        self.optimizer.param_groups[0]["lr"] = rate

        # Losses are sums over tokens, divided by the token count of the whole update: the gradient
        # does not depend on how the update is split into micro-batches and processes.
        self.model.train()
        self.gradients.start_update()
        # (4,): smoothed loss, negative log-likelihood, requests to save and to stop
        sums = torch.zeros(4, dtype=torch.float64, device=self.group.device)
        scale = self.loss_scale.factor.double() / prepared.tgt_tokens
        for index, micro_batch in prepared.micro_batches:
            # Seeding from (seed, step, micro-batch) means that resuming needs no RNG state.
            torch.manual_seed(dropout_seed(self.config.seed, step, index))
            sums[:2] += self.gradients.add(micro_batch, scale)
        sums[2].fill_(float(save))
        sums[3].fill_(float(stop))

        if self.gradients.flat is not None:
            self.group.sum_(self.gradients.flat)
        self.group.sum_(sums)

        # A gradient that is not finite changes nothing. Adam itself skips the step, on the device,
        # if found_inf is 1: weights, moments and the count of steps stay as they are.
        gradients = [parameter.grad for parameter in self.gradients.parameters]
        norm = nn.utils.get_total_norm([grad for grad in gradients if grad is not None])
        norm = norm / self.loss_scale.factor
        is_finite = norm.isfinite() & sums.isfinite().all()
        is_overflow = self.loss_scale.is_overflow(is_finite)
        self.optimizer.found_inf = (~is_finite).float()  # type: ignore[attr-defined]
        if self.loss_scale.is_used:
            # Adam divides the gradients by this.
            self.optimizer.grad_scale = self.loss_scale.factor  # type: ignore[attr-defined]
        self.optimizer.step()
        self.loss_scale.update(is_finite)

        # One copy to the host for all numbers. The caller waits for it later.
        scalars = [norm, is_finite, is_overflow, self.loss_scale.factor, self.loss_scale.n_finite]
        numbers = torch.stack([*sums, *(scalar.double() for scalar in scalars)])
        numbers = numbers.to("cpu", non_blocking=True)
        arrival = None
        if self.group.device.type == "cuda":
            arrival = torch.cuda.current_stream(self.group.device).record_event()
        return QueuedStep(prepared, rate, numbers, arrival)


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Return d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), times `scale` (equation 3).

    Steps are counted from 1.
    """
    rate: float = scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    return rate


def dropout_seed(seed: int, step: int, micro_batch: int) -> int:
    """Return the seed of the random numbers of a micro-batch, from that of the recipe."""
    mixed = np.random.SeedSequence([seed, step, micro_batch])
    return int(mixed.generate_state(1, np.uint64)[0]) % 2**63


class LossScale:
    """A factor for the loss that is as large as float16 allows (Micikevicius et al. 2018).

    The smallest positive number of float16 is 6e-8. The loss is multiplied by the factor before the
    backward pass, and Adam divides the gradient by it. If the gradient overflows, the step is
    skipped and the factor halved. With float32 and bfloat16, whose exponents are large enough, the
    factor stays 1.

    All of it is computed on the device: no step waits for it.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """Start with the initial factor.

        Args:
            dtype: Data type of activations.
            device: Where the gradients are.
        """
        self.is_used = dtype == torch.float16
        factor = INITIAL_FACTOR if self.is_used else 1.0
        self.factor = torch.full((), factor, dtype=torch.float32, device=device)
        self.n_finite = torch.zeros((), dtype=torch.int64, device=device)  # steps in a row

    def restore(self, factor: float, n_finite: int) -> None:
        """Continue from a checkpoint, unless its last step had no loss scale."""
        # Steps in float32 and bfloat16 leave the factor at 1, and count no finite steps.
        was_used = factor > 1.0 or n_finite > 0
        if self.is_used and was_used:
            self.factor.fill_(factor)
            self.n_finite.fill_(n_finite)

    def is_overflow(self, is_finite: Tensor) -> Tensor:
        """Return whether a smaller factor may help a gradient that is not finite: a bool scalar."""
        return ~is_finite & (self.factor > 1.0)

    def update(self, is_finite: Tensor) -> None:
        """Adapt the factor after a step.

        Args:
            is_finite: Whether the gradient is finite, a bool scalar on the device.
        """
        if not self.is_used:
            return
        # An `if` would wait for the device; `torch.where` does not.
        n_finite = torch.where(is_finite, self.n_finite + 1, 0)
        is_grown = n_finite == GROWTH_STEPS
        smaller = (self.factor / 2).clamp(min=1.0)
        larger = torch.where(is_grown, self.factor * 2, self.factor)
        self.factor.copy_(torch.where(is_finite, larger, smaller))
        self.n_finite.copy_(torch.where(is_grown, 0, n_finite))


def prefetch(items: Iterable[Item], compute: Callable[[Item], Result]) -> Iterator[Result]:
    """Yield `compute(item)` for the items in order; a thread computes `N_PREFETCHED` in advance."""
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        for item in items:
            waiting.append(pool.submit(compute, item))
            if len(waiting) > N_PREFETCHED:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
