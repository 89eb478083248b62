"""Set up training: the model, its optimizer and its batches on the devices at hand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from nmtkit.errors import UserError, is_out_of_memory
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import ModelConfig, TrainingConfig
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.batches import Pairs
from nmtkit.training.distributed import Group
from nmtkit.training.trainer import Trainer


@dataclass(frozen=True)
class Setup:
    """How one process of a group trains a model."""

    model: ModelConfig
    training: TrainingConfig
    group: Group
    acceleration: Acceleration
    max_tokens: int  # per side of a micro-batch
    shared: bool  # whether each process gets as many micro-batches of an update

    def trainer(self, pairs: Pairs, n_rows: int) -> Trainer:
        torch.manual_seed(self.training.seed)
        model = Transformer(self.model, n_rows, self.acceleration.dtype).to(self.group.device)
        how = self.acceleration, self.max_tokens, self.shared
        return Trainer(model, pairs, self.training, self.group, *how)


def agreed(how: Acceleration, group: Group) -> Acceleration:
    """Return what every process of `group` can do; a CUDA graph, only a process that is alone."""
    is_half = how.dtype == torch.bfloat16
    flags = is_half, how.static, how.compiled, how.captured and group.size == 1
    is_half, *techniques = (bool(group.least(each)) for each in flags)
    return Acceleration(torch.bfloat16 if is_half else torch.float32, *techniques)


@contextmanager
def enough_memory(device: torch.device, max_tokens: int) -> Iterator[None]:
    """Raise a UserError if the model or a micro-batch of `max_tokens` does not fit into memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"{device} has too little memory for this model and micro-batches of {max_tokens:,} "
            f"tokens per side; use --max-tokens {max_tokens // 2}, which draws other dropout masks "
            "and changes nothing else but rounding, or choose a smaller [model]"
        ) from None


@contextmanager
def deterministic() -> Iterator[None]:
    """Make torch choose algorithms that give the same bits each time, or refuse."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def describe_setup(trainer: Trainer, accelerate: str) -> str:
    """Describe in one line what trains: parameters, devices, precision and GPU optimizations."""
    group, how = trainer.group, trainer.acceleration
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    of_several = f"{group.size} processes, each " if group.size > 1 else ""
    on = f"{n_parameters:,} parameters on {of_several}{group.device.type}, {how.precision}"
    tokens = f"at most {trainer.max_tokens:,} tokens a side of a micro-batch"
    of_gpu = _of_gpu(how, group, accelerate) if group.device.type == "cuda" else ()
    return "; ".join([f"{on}, {tokens}", *of_gpu])


def too_long_warning(trainer: Trainer) -> str | None:
    """Return a warning that counts the pairs that are too long to train on, if there are any."""
    longest = trainer.model.config.max_positions
    is_short = trainer.pairs.are_within(longest)
    n_longer = int(np.count_nonzero(~is_short))
    if n_longer == 0:
        return None
    return (
        f"leaves out {n_longer:,} of {len(is_short):,} pairs, which have a side of more than "
        f"[model] max_positions = {longest:,} tokens"
    )


def _of_gpu(how: Acceleration, group: Group, accelerate: str) -> Iterator[str]:
    """Yield what training uses of GPUs, what it does not, and why."""
    n_here, name = torch.cuda.device_count(), torch.cuda.get_device_name(group.device)
    of_all = f", {group.size} of {n_here} GPUs (--processes {n_here} would use all)"
    yield name + (of_all if group.size < n_here else "")
    if how.static:
        missing = "no C compiler or headers of Python (packages such as gcc and python3-dev)"
        yield "compiled" if how.compiled else f"not compiled: {missing}"
        why = "several processes" if group.size > 1 else f"--accelerate {accelerate}"
        yield "one CUDA graph" if how.captured else f"no CUDA graph: {why}"
        return
    why = "float32" if how.dtype == torch.float32 else "[model] d_k, d_v or attention_dropout"
    if torch.are_deterministic_algorithms_enabled():
        why = "--deterministic"
    if accelerate == "none":
        why = "--accelerate none"
    yield f"attention in rectangles, not compiled, no CUDA graph: {why}"
