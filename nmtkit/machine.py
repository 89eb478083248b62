"""Facts of the machine: they change the speed of a result, never the result."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmtkit.errors import UserError

if TYPE_CHECKING:
    import torch

# Most tokens a side of a micro-batch. On a CPU Multi30k trains 8 % faster with 4,096 than 1,024. A
# GPU wants long rows; its figure is an estimate for the base model, not yet measured on any GPU.
CPU_MAX_TOKENS = 4_096
GPU_TOKENS_PER_GIB = 2_000


@dataclass(frozen=True)
class Machine:
    """Where to work and with what."""

    runs_dir: Path
    mirror: Path | None
    device: str  # "auto", or a name that torch knows
    max_tokens: int | None  # of a micro-batch; None: what fits this machine
    workers: int  # processes that prepare text
    processes: int | None = None  # that train; None: one for each CUDA device, else one
    deterministic: bool = False  # train with algorithms that give the same bits each time
    dtype: str = "auto"  # of activations in training: "float32" or "bfloat16"
    tensorboard: Path | None = None  # where training writes TensorBoard's event files

    @property
    def downloads_dir(self) -> Path:
        """Where downloads are kept; all recipes share them."""
        return self.runs_dir / "downloads"

    def torch_device(self) -> "torch.device":
        """The device to compute on.

        Raises:
            UserError: it does not exist here.
        """
        import torch  # 1.6 s that `nmtkit --help` does without

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            if device.type in ("cpu", "cuda"):
                torch.empty(0, device=device)
                return device
        except (RuntimeError, AssertionError):
            pass
        raise UserError(
            f"--device {self.device} is not to be had on this machine; leave it out, or say cpu"
        )

    def torch_dtype(self) -> "torch.dtype":
        """The precision of activations in training: by default bfloat16 where the GPU has it."""
        import torch

        if self.dtype != "auto":
            return torch.bfloat16 if self.dtype == "bfloat16" else torch.float32
        on_cuda = self.torch_device().type == "cuda"
        has_bfloat16 = on_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bfloat16 else torch.float32

    def n_processes(self) -> int:
        """How many processes train, each with a device of its own, or with a part of the CPU.

        Raises:
            UserError: there are not as many devices.
        """
        import torch

        device = self.torch_device()
        if device.type != "cuda":
            return self.processes or 1
        n_devices = 1 if device.index is not None else torch.cuda.device_count()
        if self.processes is not None and self.processes > n_devices:
            raise UserError(
                f"--processes {self.processes} is more than the {n_devices} CUDA devices of "
                f"--device {self.device}; lower it, or leave it out"
            )
        return self.processes or n_devices

    def tokens_per_micro_batch(self, device: "torch.device") -> int:
        """The most tokens a side that one forward and backward pass takes at a time."""
        if self.max_tokens is not None:
            return self.max_tokens
        if device.type != "cuda":
            return CPU_MAX_TOKENS
        import torch

        gib = int(torch.cuda.get_device_properties(device).total_memory / 2**30)
        return gib * GPU_TOKENS_PER_GIB


def default_workers() -> int:
    """One process for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
