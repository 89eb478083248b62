"""Facts of the machine: of the result, they change rounding and the masks of dropout at most."""

import math
import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    import torch

PROCESSES_PER_CORE = 4
# Of Linux: the control groups of this process, and where their limits are.
OWN_CGROUPS = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
# Minimum d_model for which bfloat16 is faster than float32 on a CPU with instructions for it.
MIN_BFLOAT16_WIDTH = 256
TURING = (7, 5)  # the oldest that torch's wheels for CUDA 13 have code for; 12.6 has older ones
# What torch reports without code for GPUs, without a driver, or without a GPU that this process may
# use.
NO_GPU = ("not compiled with CUDA", "no NVIDIA driver", "No CUDA GPUs", "forked subprocess")
RUNS = Path("runs")  # the default of `runs_dir`
PREPARE_OPTIONS = ("mirror", "workers")  # fields that `nmtkit train` has no option for
# What training may use of what makes a GPU fast: all that is there, no CUDA graph, or nothing, with
# attention in rectangles.
Accelerate = Literal["auto", "compile", "none"]
# The data type of activations in training; auto is bfloat16 where that is faster.
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
class Settings:
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
                "`pip install tensorboard`, or omit the option"
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

        _limit_threads()
        if self.device == "auto":
            if torch.cuda.is_available():
                return torch.device("cuda")
            _check_no_gpu()
            return torch.device("cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:  # torch lists dozens of names, of which most are not for users
            raise UserError(
                f"--device {self.device} is not a device; use --device cpu, cuda or cuda:N"
            ) from None
        if device.type == "cpu":
            return device
        if device.type != "cuda":
            raise UserError(f"nmtkit has no support for {device.type}; use --device cpu")
        if not torch.cuda.is_available():
            reason = _gpu_error() or "torch finds no GPU"
            raise UserError(
                f"--device {self.device} is not available ({reason}); repair this, or use --device "
                "cpu"
            )
        n_gpus = torch.cuda.device_count()
        if device.index is not None and device.index >= n_gpus:
            raise UserError(
                f"--device {self.device} is not available: this machine has {n_gpus} GPUs, counted "
                f"from 0; use --device cuda:{n_gpus - 1} or lower, or --device cpu"
            )
        return device

    def torch_dtype(self, device: "torch.device", d_model: int | None = None) -> "torch.dtype":
        """Return the data type of activations in training.

        Deviation: bfloat16 on a GPU or CPU that computes faster in it. The paper's published code
        used float32.

        Args:
            device: Where the model is trained.
            d_model: Width of the model. Matrices of a narrow one, or of None, are too small to be
                faster in bfloat16 on a CPU.
        """
        import torch

        if self.dtype != "auto":
            dtype: torch.dtype = getattr(torch, self.dtype)
            return dtype
        if device.type == "cuda":
            is_faster = torch.cuda.is_bf16_supported(including_emulation=False)
        else:
            is_wide = d_model is not None and d_model >= MIN_BFLOAT16_WIDTH
            is_faster = is_wide and has_bfloat16_instructions()
        return torch.bfloat16 if is_faster else torch.float32

    def n_processes(self) -> int:
        """Return how many processes train, each on its own device, or on a share of the CPU."""
        if self.processes == 1:
            return 1
        import torch

        device, most = self._device(), PROCESSES_PER_CORE * n_cores()
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
        return self.workers or n_cores()


def has_bfloat16_instructions() -> bool:
    """Return whether this CPU multiplies matrices in bfloat16, with AVX-512 or AMX."""
    import torch

    # oneDNN uses the instructions.
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


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


def _gpu_error() -> str | None:
    """Return why torch cannot use a GPU, in the words of torch or of the driver; None if it can."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # the former of a torch without CUDA
        return str(error).split("\n")[0]
    return None


def _check_no_gpu() -> None:
    """Refuse a machine with a GPU that torch cannot use, for example for its old driver."""
    reason = _gpu_error()
    if reason and not any(none in reason for none in NO_GPU):
        raise UserError(
            f"torch cannot use the GPU of this machine ({reason}); repair this, or use --device cpu"
        )


def n_cores() -> int:
    """Return the number of cores to compute on: those allowed, or fewer if a quota is lower."""
    quota = _cpu_quota()
    if quota is None:
        return _n_allowed_cores()
    return min(_n_allowed_cores(), max(1, math.ceil(quota)))


def _n_allowed_cores() -> int:
    """Return the number of cores that this process may run on, whatever its quota."""
    on_linux = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if on_linux else os.cpu_count() or 1


def _cpu_quota() -> float | None:
    """Return the lowest quota of CPU time of this process's control groups, in cores."""
    quotas = []
    for folder in _cgroup_folders():
        # An unlimited group has "max" or -1, and a group of another kind lacks the file.
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (folder / "cpu.max").is_file():
                text = (folder / "cpu.max").read_text(encoding="utf-8")
                quota, period = text.split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
                period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
            cores = int(quota) / int(period)
            if cores > 0:
                quotas.append(cores)
    return min(quotas, default=None)


def _cgroup_folders() -> Iterator[Path]:
    """Yield the folders of this process's control groups that may limit its time, and of theirs."""
    try:
        text = OWN_CGROUPS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return
    for line in text.removesuffix("\n").split("\n"):
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / controllers  # of version 2, without controllers, it is CGROUPS itself
        # In a container, the path may be the host's, or lead out of what the container sees; its
        # limits are those of the root.
        folder = root if ".." in path else root / path.lstrip("/")
        while folder != root and folder.is_relative_to(root):
            yield folder
            folder = folder.parent
        yield root
    yield CGROUPS / "cpu"  # version 1, where the first file does not name its controllers


def _limit_threads() -> None:
    """Let torch use no more threads than a quota has cores, unless the user names a number.

    Else the system would stop all of them for most of the time, each in the middle of its work.
    """
    import torch

    quota = _cpu_quota()
    if quota is None or "OMP_NUM_THREADS" in os.environ:
        return
    if torch.get_num_threads() > n_cores():
        torch.set_num_threads(n_cores())
