"""Set up training: the model, its optimizer and its batches on the devices at hand."""

import ctypes
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

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3)
MAX_INT = 2**31 - 1


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
        """Return a trainer of a new model with `n_rows` rows of embeddings."""
        device = self.group.device
        if device.type == "cpu":
            keep_freed_memory()
        torch.manual_seed(self.training.seed)
        model = Transformer(self.model, n_rows, self.acceleration.dtype).to(device)
        how = self.acceleration, self.max_tokens, self.shared
        return Trainer(model, pairs, self.training, self.group, *how)


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
            f"tokens per side; use --max-tokens {max_tokens // 2}, which changes the result only "
            "by rounding, or choose a smaller [model]"
        ) from None


def keep_freed_memory() -> None:
    """Let glibc keep what a step frees, in place of pages that the kernel clears in each step."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc alone has it
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, MAX_INT)


@contextmanager
def deterministic() -> Iterator[None]:
    """Make torch choose algorithms that give the same bits each time, or refuse."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def beginning(trainer: Trainer) -> Iterator[str]:
    """Yield a sentence for each thing that the user should know as training begins."""
    group, longest = trainer.group, trainer.model.config.max_positions
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    of_several = f"{group.size} processes, each " if group.size > 1 else ""
    yield (
        f"{n_parameters:,} parameters on {of_several}{group.device.type}, "
        f"{trainer.acceleration.precision}, {trainer.max_tokens:,} tokens a side of a micro-batch"
    )
    within = trainer.pairs.are_within(longest)
    if n_longer := int(np.count_nonzero(~within)):
        yield (
            f"leaves out {n_longer:,} of {len(within):,} pairs, which have a side of more than "
            f"[model] max_positions = {longest:,} tokens"
        )
    if trainer.acceleration.static and not trainer.acceleration.compiled:
        yield (
            "note: layers are not compiled, which would be faster: a C compiler or the headers of "
            "Python are missing; install them (packages such as gcc and python3-dev)"
        )
