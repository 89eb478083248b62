"""Facts of the machine: of the result, they change rounding and the masks of dropout at most."""

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmtkit.errors import UserError

if TYPE_CHECKING:
    import torch

PROCESSES_PER_CORE = 4
TURING = (7, 5)  # the oldest that torch's wheels for CUDA 13 have code for; 12.6 has older ones
# What torch says where there is no driver, or no GPU that this process may use.
NO_GPU = ("no NVIDIA driver", "No CUDA GPUs", "forked subprocess")
RUNS = Path("runs")  # the default of `runs_dir`
OF_PREPARE = ("mirror", "workers")  # fields that `nmtkit train` has no option for
# What training may use of what makes a GPU fast: all that is there, no CUDA graph, or nothing, with
# attention in rectangles.
Accelerate = Literal["auto", "compile", "none"]
# The data type of activations in training; auto is bfloat16 if the GPU supports it.
Precision = Literal["auto", "float32", "bfloat16", "float16"]


class EngineName(StrEnum):
    """What runs the model of a bundle."""

    TORCH = "torch"
    CTRANSLATE2 = "ctranslate2"
    AUTO = "auto"  # CTranslate2 on a CPU, if it can run the model; else torch


class EnginePrecision(StrEnum):
    """The data type in which an engine translates."""

    AUTO = "auto"  # float32
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"


@dataclass(frozen=True)
class Machine:
    """Where to work and with what. Each field is the command-line option of the same name."""

    runs_dir: Path
    mirror: Path | None = None  # a folder of downloads, read instead of the network
    device: str = "auto"  # or a name that torch knows
    max_tokens: int | None = None  # per side of a micro-batch; None: what fits this machine
    workers: int | None = None  # processes that prepare text; None: one per core
    processes: int = 1  # that train, each on its own GPU or on a share of the CPU
    dtype: Precision = "auto"
    accelerate: Accelerate = "auto"
    deterministic: bool = False  # train with algorithms that give the same bits every time
    tensorboard: Path | None = None  # where training writes TensorBoard's event files

    def check(self) -> None:
        """Check that this machine has what the options ask for, without torch if they ask none."""
        if self.device != "auto":
            self._device()
        self.n_processes()
        if self.tensorboard is not None and find_spec("tensorboard") is None:
            raise UserError(
                "--tensorboard needs a package that is not installed; run "
                "`pip install nmtkit[tensorboard]`, or leave the option out"
            )

    def options(self, besides: Collection[str] = ()) -> list[str]:
        """Return the options that give another process this machine, but for some fields."""
        options = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name not in besides:
                name = f"--{field.name.replace('_', '-')}"
                options.append(name if value is True else f"{name}={value}")
        return options

    @property
    def downloads_dir(self) -> Path:
        return self.runs_dir / "downloads"

    def torch_device(self) -> "torch.device":
        """Return the device to compute on; a GPU with a number becomes torch's current one."""
        import torch

        device = self._device()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
        return device

    def _device(self) -> "torch.device":
        """Return the device to compute on, without a context on it, which would take its memory."""
        import torch  # slow, and `nmtkit --help` does not need it

        is_there = torch.cuda.is_available()
        if self.device == "auto":
            if is_there:
                return torch.device("cuda")
            _check_no_gpu()
            return torch.device("cpu")
        with suppress(RuntimeError):
            device = torch.device(self.device)
            is_there = is_there and (device.index or 0) < torch.cuda.device_count()
            if device.type == "cpu" or (device.type == "cuda" and is_there):
                return device
        raise UserError(
            f"--device {self.device} is not available on this machine; use --device cpu, or leave "
            "the option out"
        )

    def torch_dtype(self, device: "torch.device") -> "torch.dtype":
        """Return the data type of activations in training.

        Deviation: bfloat16 on a GPU that supports it. The paper's published code used float32.
        """
        import torch

        if self.dtype != "auto":
            dtype: torch.dtype = getattr(torch, self.dtype)
            return dtype
        is_half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if is_half else torch.float32

    def n_processes(self) -> int:
        """Return how many processes train, each on its own device, or on a share of the CPU."""
        if self.processes == 1:
            return 1
        import torch

        device, most = self._device(), PROCESSES_PER_CORE * _n_cores()
        what = f"the {most} ({PROCESSES_PER_CORE} a core)"
        if device.type == "cuda":
            most = 1 if device.index is not None else torch.cuda.device_count()
            what = f"the {most} CUDA devices"
        if self.processes > most:
            raise UserError(
                f"--processes {self.processes} is more than {what} of --device {self.device}; use "
                f"at most --processes {most}, or leave the option out"
            )
        return self.processes

    def n_workers(self) -> int:
        return self.workers or _n_cores()


def check_has_code(device: "torch.device") -> None:
    """Refuse a GPU that torch has no code for, in the process that is to compute on it.

    Code for sm_75 runs on GPUs of the same major version whose minor version is not lower, code for
    compute_75 on all that are not older.
    """
    import torch

    codes = re.findall(r"(sm|compute)_(\d+)(\d)\b", " ".join(torch.cuda.get_arch_list()))
    if device.type != "cuda" or not codes:  # none for GPUs of other makers
        return
    gpu = torch.cuda.get_device_capability(device)
    versions = [(kind, (int(major), int(minor))) for kind, major, minor in codes]
    if not any(of <= gpu and (kind == "compute" or of[0] == gpu[0]) for kind, of in versions):
        torch_version, index = torch.__version__.split("+")[0], f"cu{126 if gpu < TURING else 130}"
        raise UserError(
            f"torch {torch.__version__} has no code for {torch.cuda.get_device_name(device)}, of "
            f"compute capability {gpu[0]}.{gpu[1]}; run `pip install --force-reinstall torch=="
            f"{torch_version} --index-url https://download.pytorch.org/whl/{index}`, or use "
            "--device cpu"
        )


def _check_no_gpu() -> None:
    """Refuse a machine with a GPU that torch cannot use, for example for its old driver."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except AssertionError:  # this torch is built without CUDA
        return
    except RuntimeError as error:
        why = str(error).split("\n")[0]
        if not any(none in why for none in NO_GPU):
            raise UserError(
                f"torch cannot use the GPU of this machine ({why}); repair this, or use --device "
                "cpu"
            ) from None


def _n_cores() -> int:
    on_linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1
