"""Set up training: the model, its optimizer and its batches on the devices at hand."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from nmtkit.config.recipe import ModelConfig, TrainingConfig
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.batches import Pairs
from nmtkit.training.bins import send, trial_bins
from nmtkit.training.dev import perplexity
from nmtkit.training.distributed import Group
from nmtkit.training.step import Trainer
from nmtkit.utils.errors import AlreadyReported, RestartNeeded, UserError, is_out_of_memory


@dataclass(frozen=True)
class Setup:
    """Everything that a process of a group needs to train, except for text and weights."""

    model: ModelConfig
    training: TrainingConfig
    group: Group
    acceleration: Acceleration
    max_tokens: int  # per side of a micro-batch
    multiple_of: int  # of the number of micro-batches of an update
    use_bins: bool  # dense bins, for GPUs

    def trainer(self, pairs: Pairs, n_rows: int) -> Trainer:
        """Build a model with random weights and its trainer.

        Args:
            pairs: The training corpus.
            n_rows: Rows of the embedding matrix.
        """
        torch.manual_seed(self.training.seed)
        model = Transformer(self.model, n_rows, self.acceleration.dtype).to(self.group.device)
        return Trainer(
            model,
            pairs,
            self.training,
            self.group,
            self.acceleration,
            self.max_tokens,
            multiple_of=self.multiple_of,
            use_bins=self.use_bins,
        )


def common_acceleration(acceleration: Acceleration, group: Group) -> Acceleration:
    """Return the lowest level of all processes, and their precision, or float32 if they differ."""
    # Only numbers can be sent to other processes.
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    indices = group.gather(dtypes.index(acceleration.dtype))
    level = group.min(acceleration.level)
    is_same = len(set(indices)) == 1
    return Acceleration(acceleration.dtype if is_same else torch.float32, Level(int(level)))


def start_trainer(
    setup: Setup,
    pairs: Pairs,
    n_rows: int,
    warn: Callable[[str], None],
    dev_pairs: Pairs | None = None,
) -> Trainer:
    """Build a trainer whose first step has been tried, with the optimizations that work here.

    Where memory is short, the micro-batches are halved. After any other failure, the next lower
    level is tried. Processes take the smallest micro-batch and the lowest level of the group.

    Args:
        setup: The highest level and the largest micro-batches to try.
        pairs: The training corpus.
        n_rows: Rows of the embedding matrix.
        warn: Prints a warning.
        dev_pairs: The development set, whose evaluation is part of the trial.

    Raises:
        RestartNeeded: No CUDA graph could be captured, in this process or in another one.
        UserError: The memory is too small for the smallest micro-batch.
        RuntimeError: The step fails at the lowest level.
        AlreadyReported: It fails at the lowest level in another process.
    """
    if not setup.use_bins:
        return setup.trainer(pairs, n_rows)
    group = setup.group
    while True:
        trainer = None
        error = None
        try:
            trainer = setup.trainer(pairs, n_rows)
        except Exception as failure:  # noqa: BLE001 - compilers raise errors of many kinds
            error = failure
        if not group.any(error is not None):
            assert trainer is not None
            try:
                # Now that all processes are here: NCCL allocates its buffers in the first sum.
                if trainer.gradients.flat is not None:
                    group.sum_(trainer.gradients.flat)
                try_step(trainer, dev_pairs)
            except Exception as failure:  # noqa: BLE001
                error = failure
            if not group.any(error is not None):
                return trainer
        # All processes see the same answers, and take the same branch.
        is_memory_short = group.any(error is not None and is_short_of_memory(error))
        if setup.acceleration.level == Level.CAPTURED and not is_memory_short:
            if error is not None:
                cause = root_cause(error)
                warn(f"no CUDA graph could be captured ({cause}); restarting without CUDA graphs")
            raise RestartNeeded from error
        weaker = weaker_setup(setup, is_memory_short=is_memory_short)
        if weaker is None:
            # Without an error of its own, this process leaves the message to the one that failed.
            if error is None:
                raise AlreadyReported(1)
            with enough_memory(group.device, setup.max_tokens, setup.model.max_positions):
                raise error
        if error is not None:
            warn(
                f"training with {setup.acceleration} failed ({root_cause(error)}); trying "
                f"{weaker.acceleration} with {weaker.max_tokens:,} tokens per micro-batch"
            )
        setup = weaker
        # The next model needs the memory of this one, which the frames of the error hold too.
        del trainer, error
        torch.compiler.reset()
        gc.collect()
        if group.device.type == "cuda":
            torch.cuda.empty_cache()


def weaker_setup(setup: Setup, *, is_memory_short: bool) -> Setup | None:
    """Return the setup to try after a failure, or None if there is none.

    Args:
        setup: The setup that failed.
        is_memory_short: Whether it failed because memory ran out.

    Returns:
        Micro-batches of half the size if memory was short, otherwise the next lower level.
    """
    if not is_memory_short:
        lower = setup.acceleration.lower()
        return None if lower is None else replace(setup, acceleration=lower)
    # A micro-batch must hold the longest sentence.
    if setup.max_tokens <= setup.model.max_positions:
        return None
    return replace(setup, max_tokens=setup.max_tokens // 2)


def try_step(trainer: Trainer, dev_pairs: Pairs | None) -> None:
    """Run all parts of a first step that could fail, without changing a weight.

    Args:
        trainer: A trainer with bins.
        dev_pairs: The development set, to be evaluated too.
    """
    device = trainer.group.device
    trainer.model.train()
    # All shapes are tried in all processes, whichever of them the first updates need.
    max_length = trainer.model.config.max_positions
    batches = []
    for shape in trainer.bin_shapes:
        batches.append(send(trial_bins(trainer.pairs, shape, max_length), device))
    if trainer.acceleration.level == Level.CAPTURED:
        trainer.gradients.capture(batches)
    else:
        for bins in batches:
            trainer.gradients.add(bins, torch.ones((), dtype=torch.float64, device=device))
    # Adam allocates its moments. It skips the step, as after a gradient that is not finite.
    trainer.optimizer.found_inf = torch.ones((), device=device)  # type: ignore[attr-defined]
    trainer.optimizer.step()
    # The logits of an evaluation may take gigabytes in addition to the memory of the graphs.
    if dev_pairs is not None:
        with torch.compiler.set_stance("force_eager"):
            perplexity(trainer.model, dev_pairs, device=device, max_tokens=trainer.max_tokens)
    trainer.gradients.start_update()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def root_cause(error: BaseException) -> str:
    """Return the innermost error behind `error` in one line: compilers wrap the cause."""
    # torch._dynamo and inductor keep it in `inner_exception`.
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    if error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__  # a failed end of a capture hides what went wrong in it
    message = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {message}"


def is_short_of_memory(error: BaseException) -> bool:
    """Return whether `error`, or an error behind it, means that memory ran out."""
    seen: BaseException | None = error
    while seen is not None:
        if is_out_of_memory(seen):
            return True
        seen = getattr(seen, "inner_exception", None) or seen.__cause__ or seen.__context__
    return False


@contextmanager
def enough_memory(device: torch.device, max_tokens: int, max_positions: int) -> Iterator[None]:
    """Raise a UserError if the model or a micro-batch of `max_tokens` does not fit into memory.

    Args:
        device: The device of the training.
        max_tokens: Maximum number of tokens per side of a micro-batch.
        max_positions: [model] max_positions; a micro-batch cannot be smaller.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        remedy = "choose a smaller [model] or smaller max_positions"
        if max_tokens // 2 >= max_positions:
            remedy = (
                f"pass --max-tokens {max_tokens // 2} (results differ only by dropout masks and "
                "rounding), or choose a smaller [model]"
            )
        raise UserError(
            f"{device} has too little memory for this model and micro-batches of {max_tokens:,} "
            f"tokens per side; {remedy}"
        ) from None


@contextmanager
def deterministic() -> Iterator[None]:
    """Let torch use only algorithms that give the same bits in every run."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
