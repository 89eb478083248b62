"""Messages before the first step: what trains, where, how, and what is left out."""

import numpy as np
import torch

from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.distributed import Group
from nmtkit.training.step import Trainer
from nmtkit.utils.text import counted


def training_summary(trainer: Trainer, accelerate: str) -> str:
    """Describe parameters, devices, precision and GPU optimizations in one line.

    Args:
        trainer: The trainer.
        accelerate: The value of the option --accelerate.
    """
    group = trainer.group
    acceleration = trainer.acceleration
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    devices = f"{group.size} processes on {group.device.type}"
    if group.size == 1:
        devices = str(group.device.type)
    summary = f"{n_parameters:,} parameters on {devices}, {acceleration.precision}"
    if trainer.bin_shapes:
        shapes = ", ".join(f"{shape.n_bins:,} x {shape.length:,}" for shape in trainer.bin_shapes)
        summary += f"; micro-batches of {shapes} tokens"
    else:
        summary += f"; up to {trainer.max_tokens:,} tokens per side of a micro-batch"
    if group.device.type == "cuda":
        summary += f"; {_gpu_summary(acceleration, group, accelerate)}"
    return summary


def too_long_warning(trainer: Trainer) -> str | None:
    """Return a warning that counts the pairs that are too long to train on, if there are any."""
    longest = trainer.model.config.max_positions
    is_short = trainer.pairs.are_within(longest)
    n_longer = int(np.count_nonzero(~is_short))
    if n_longer == 0:
        return None
    return (
        f"skipping {n_longer:,} of {counted(len(is_short), 'pair')}: a side is longer than "
        f"[model] max_positions = {longest:,} tokens"
    )


def float16_hint(trainer: Trainer, dtype: str) -> str | None:
    """Return a line that names float16, if the GPU has no bfloat16 and `auto` chose float32.

    Args:
        trainer: The trainer.
        dtype: The value of the option --dtype.
    """
    device = trainer.group.device
    is_float32 = trainer.acceleration.dtype == torch.float32
    if dtype != "auto" or device.type != "cuda" or not is_float32:
        return None
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return None
    return (
        "this GPU does not support bfloat16; --dtype float16 is expected to train 4 to 5 times as "
        "fast (an estimate for a T4; float16 has not run on such a GPU yet)"
    )


def _gpu_summary(acceleration: Acceleration, group: Group, accelerate: str) -> str:
    """Describe the GPUs and the optimizations that are used.

    Args:
        acceleration: The acceleration of all processes.
        group: The processes that train together.
        accelerate: The value of the option --accelerate.
    """
    names = {
        Level.EAGER: "not compiled",
        Level.COMPILED: "compiled, without CUDA graphs",
        Level.CAPTURED: "compiled, with CUDA graphs",
    }
    name = torch.cuda.get_device_name(group.device)
    n_gpus = torch.cuda.device_count()
    # A process uses one GPU, so that the others are idle.
    if group.size < n_gpus:
        name += f", {group.size} of {n_gpus} GPUs (--processes {n_gpus} uses all)"
    optimizations = names[acceleration.level]
    if accelerate != "auto":
        optimizations += f" (--accelerate {accelerate})"
    elif acceleration.level == Level.EAGER:
        optimizations += " (no C compiler or Python headers: install gcc and python3-dev)"
    return f"{name}; {optimizations}"
