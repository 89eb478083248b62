"""The setup that training shares with its trials (bench, plan): processes, text, model, device."""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from nmtkit.corpus.prepared import SIDES, PreparedCorpus, Split
from nmtkit.model.transformer import Transformer
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.code_version import code_identity
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.training.acceleration import MAX_LEVEL, Acceleration, Level
from nmtkit.training.batches import Pairs
from nmtkit.training.bins import send, trial_bins
from nmtkit.training.distributed import Group, is_worker
from nmtkit.training.launch import launch
from nmtkit.training.loop import perplexity
from nmtkit.training.memory import max_fitting_tokens
from nmtkit.training.step import Setup, Trainer
from nmtkit.utils import progress
from nmtkit.utils.errors import AlreadyReported, RestartNeeded, UserError, is_out_of_memory
from nmtkit.utils.hardware import check_has_code


def start_processes(pipeline: Pipeline, command: Sequence[str]) -> bool:
    """Run a command in several processes, if the user requested several and this is not one.

    Args:
        pipeline: The pipeline, whose recipe and overrides are appended to the command.
        command: The name of the command and its options, without `nmtkit`.

    Returns:
        Whether the processes ran. All of them have succeeded.
    """
    # A worker runs the same command, and must not start workers of its own.
    if is_worker():
        return False
    n_processes = pipeline.settings.n_processes()
    if n_processes == 1:
        return False
    name = command[0]
    progress.log(f"{name}: {n_processes} processes")
    arguments = pipeline.commands.child_arguments(command)
    launch(n_processes, arguments)
    return True


def open_pairs(prepared: PreparedCorpus, split: Split, weights: Sequence[float] = ()) -> Pairs:
    """Open the token ids of a prepared corpus.

    Args:
        prepared: The artifact of `prepare`.
        split: The part to open: train or dev.
        weights: The weight of each training corpus; none: all pairs are drawn once per epoch.
    """
    src, tgt = (prepared.ids(split, side) for side in SIDES)
    corpora = []
    for counts, weight in zip(prepared.counts().train, weights, strict=False):
        corpora.append((counts["kept"], weight))
    return Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets, tuple(corpora))


def choose_setup(pipeline: Pipeline, group: Group) -> Setup:
    """Choose the precision, the level and the size of micro-batches that all processes use.

    Processes differ in their GPUs and memory; all of them train as the weakest one can.

    Args:
        pipeline: The recipe and the settings of this process.
        group: The processes that train together. All of them call this function.

    Raises:
        UserError: The processes have different recipes or versions of nmtkit, or torch does not
            support the GPU.
    """
    model = pipeline.recipe.model
    training = pipeline.recipe.training
    settings = pipeline.settings
    device = group.device
    check_has_code(device)
    # Processes on several nodes may have been started with different files.
    hashes = {
        "artifact": pipeline.fingerprint("train"),
        "code": compute_fingerprint("train", code_identity()),
    }
    for name, text in hashes.items():
        number = int(text[:13], 16)  # 52 bits: float64 holds them exactly
        group.check_same(f"the {name} of this training", number, "recipe, --set and nmtkit")

    dtype = settings.torch_dtype(device, model.d_model)
    acceleration = Acceleration.choose(device, dtype, MAX_LEVEL[settings.accelerate])
    acceleration = common_acceleration(acceleration, group)

    # The size of the vocabulary is only estimated, since this is also used before `prepare`.
    max_tokens = settings.max_tokens
    if max_tokens is None:
        n_rows = model.embedding_rows(pipeline.expected_vocabulary())
        max_tokens = max_fitting_tokens(device, model, n_rows, acceleration.dtype, group.size)
    # A micro-batch larger than an update is never filled. Bins are not limited: with their padding,
    # an update takes more positions than tokens.
    use_bins = device.type == "cuda"
    if not use_bins:
        tokens_per_update = max(training.src_tokens_per_update, training.tgt_tokens_per_update)
        max_tokens = min(tokens_per_update, max_tokens)
    return Setup(
        model=model,
        training=training,
        group=group,
        acceleration=acceleration,
        max_tokens=int(group.min(max_tokens)),
        # With the user's own maximum, dropout is the same on any number of processes.
        multiple_of=group.size if settings.max_tokens is None else 1,
        use_bins=use_bins,
    )


def common_acceleration(acceleration: Acceleration, group: Group) -> Acceleration:
    """Return the lowest level of all processes, and their precision, or float32 if they differ."""
    # Only numbers can be sent to other processes.
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    indices = group.gather(dtypes.index(acceleration.dtype))
    level = group.min(acceleration.level)
    is_same = len(set(indices)) == 1
    return Acceleration(acceleration.dtype if is_same else torch.float32, Level(int(level)))


def new_trainer(setup: Setup, pairs: Pairs, n_rows: int) -> Trainer:
    """Build a model with random weights and its trainer.

    Args:
        setup: The configuration, precision and micro-batches.
        pairs: The training corpus.
        n_rows: Rows of the embedding matrix.
    """
    torch.manual_seed(setup.training.seed)
    model = Transformer(setup.model, n_rows, setup.acceleration.dtype).to(setup.group.device)
    return Trainer(model, pairs, setup)


def start_trainer(
    setup: Setup,
    pairs: Pairs,
    n_rows: int,
    dev_pairs: Pairs | None = None,
) -> Trainer:
    """Build a trainer whose first step has been tried, with the optimizations that work here.

    Where memory is short, the micro-batches are halved. After any other failure, the next lower
    level is tried. Processes take the smallest micro-batch and the lowest level of the group.

    Args:
        setup: The highest level and the largest micro-batches to try.
        pairs: The training corpus.
        n_rows: Rows of the embedding matrix.
        dev_pairs: The development set, whose evaluation is part of the trial.

    Raises:
        RestartNeeded: No CUDA graph could be captured, in this process or in another one.
        UserError: The memory is too small for the smallest micro-batch.
        RuntimeError: The step fails at the lowest level.
        AlreadyReported: It fails at the lowest level in another process.
    """
    if not setup.use_bins:
        return new_trainer(setup, pairs, n_rows)
    group = setup.group
    while True:
        trainer = None
        error = None
        try:
            trainer = new_trainer(setup, pairs, n_rows)
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
            if error is None:
                raise RestartNeeded
            cause = f"no CUDA graph could be captured ({root_cause(error)})"
            progress.warn(f"{cause}; restarting without CUDA graphs")
            raise RestartNeeded(cause) from error
        weaker = weaker_setup(setup, is_memory_short=is_memory_short)
        if weaker is None:
            # Without an error of its own, this process leaves the message to the one that failed.
            if error is None:
                raise AlreadyReported(1)
            with enough_memory(group.device, setup.max_tokens, setup.model.max_positions):
                raise error
        if error is not None:
            progress.warn(
                f"training with {setup.acceleration} failed ({root_cause(error)}); trying "
                f"{weaker.acceleration} with {weaker.max_tokens:,} tokens per micro-batch"
            )
        setup = weaker
        # The next model needs the memory of this one. The frames of the error hold it, too.
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
    if trainer.setup.acceleration.level == Level.CAPTURED:
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
            perplexity(trainer.model, dev_pairs, device=device, max_tokens=trainer.setup.max_tokens)
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
