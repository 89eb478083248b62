"""Execution settings. They affect speed; results change only by rounding and dropout masks."""

from dataclasses import dataclass, fields
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nmtkit.utils import hardware
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted

if TYPE_CHECKING:
    import torch

    from nmtkit.sources.download import Downloads

RUNS = Path("runs")  # the default of `runs_dir`
# Fields that `nmtkit prepare` has options for. `nmtkit train` has options for `runs_dir` and all
# other fields, and `nmtkit run` for both.
PREPARE_FIELDS = ("runs_dir", "mirror", "workers")
PROCESSES_PER_CORE = 4  # maximum
# Acceleration of training on a GPU: everything that works there, without CUDA graphs, or nothing,
# with padded attention.
Accelerate = Literal["auto", "compile", "none"]
# Minimum d_model where bfloat16 is faster than float32 on a CPU with instructions for it.
MIN_BFLOAT16_WIDTH = 256
# The data type of activations in training; auto is bfloat16 where that is faster.
Precision = Literal["auto", "float32", "bfloat16", "float16"]


class EngineName(StrEnum):
    """The library that runs the model of a bundle."""

    TORCH = "torch"
    CTRANSLATE2 = "ctranslate2"
    AUTO = "auto"  # CTranslate2 on a CPU, if it can run the model; otherwise torch


class EnginePrecision(StrEnum):
    """The data type of an engine's computations."""

    AUTO = "auto"  # float32
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"


@dataclass(frozen=True)
class Settings:
    """Folders and hardware of a run. A field is the command-line option of the same name."""

    runs_dir: Path
    mirror: Path | None = None  # a folder of downloads, read instead of the network
    device: str = "auto"  # or a name that torch knows
    max_tokens: int | None = None  # per side of a micro-batch; None: limited by memory
    workers: int | None = None  # processes that prepare text; None: one per core
    processes: int = 1  # that train, on one GPU per process or on shares of the CPU
    dtype: Precision = "auto"
    accelerate: Accelerate = "auto"
    deterministic: bool = False  # train with algorithms that give the same bits every time
    tensorboard: Path | None = None  # where training writes TensorBoard's event files

    @property
    def downloads_dir(self) -> Path:
        """The folder of downloaded archives."""
        return self.runs_dir / "downloads"

    def downloads(self) -> "Downloads":
        """Return the downloaded archives, and the network or the mirror that they come from."""
        from nmtkit.sources.download import Downloads  # imports pydantic; `--help` does not need it

        return Downloads(self.downloads_dir, self.mirror)

    def check(self) -> None:
        """Check that this machine has the devices and packages that the options name.

        With the default values, or on a CPU, this does not import torch.

        Raises:
            UserError: A device or a package is missing.
        """
        if self.device not in ("auto", "cpu"):
            self._device()
        self.n_processes()
        if self.tensorboard is not None and find_spec("tensorboard") is None:
            raise UserError(
                "--tensorboard needs a package that is not installed; run "
                "`pip install tensorboard`, or omit the option"
            )

    def options(self, stage: Literal["prepare", "train"] | None = None) -> list[str]:
        """Return the options that give another process these settings.

        Args:
            stage: The command of that process; None: it takes all settings, as `nmtkit run` does.
        """
        names = [field.name for field in fields(self)]
        if stage == "prepare":
            names = list(PREPARE_FIELDS)
        elif stage == "train":
            names = [name for name in names if name == "runs_dir" or name not in PREPARE_FIELDS]
        options = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default and field.name in names:
                name = f"--{field.name.replace('_', '-')}"
                options.append(name if value is True else f"{name}={value}")
        return options

    def torch_device(self) -> "torch.device":
        """Return the device to compute on; a GPU with a number becomes torch's current one."""
        import torch  # slow, and `nmtkit --help` does not need it

        device = self._device()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
        return device

    def _device(self) -> "torch.device":
        """Return the device, without making it torch's current one."""
        hardware.limit_threads()
        return hardware.find_device(self.device)

    def torch_dtype(self, device: "torch.device", d_model: int | None = None) -> "torch.dtype":
        """Return the data type of activations in training.

        Deviation: bfloat16 on a GPU or CPU that computes faster in it. The paper's published code
        used float32.

        Args:
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
            is_faster = is_wide and hardware.has_bfloat16_instructions()
        return torch.bfloat16 if is_faster else torch.float32

    def n_processes(self) -> int:
        """Return the number of processes that train, on one GPU per process or shares of the CPU.

        Raises:
            UserError: There are more processes than the device allows.
        """
        if self.processes == 1:
            return 1
        import torch

        device = self._device()
        # A GPU with a number is a single one; without a number, all of them may be used.
        if device.type == "cuda":
            max_processes = 1 if device.index is not None else torch.cuda.device_count()
            limit = f"the {counted(max_processes, 'CUDA device')}"
        else:
            max_processes = PROCESSES_PER_CORE * hardware.n_cores()
            limit = f"the maximum of {max_processes:,} ({PROCESSES_PER_CORE} per core)"
        if self.processes > max_processes:
            raise UserError(
                f"--processes {self.processes} is more than {limit} of --device {self.device}; "
                f"lower it to --processes {max_processes}, or omit the option"
            )
        return self.processes

    def n_workers(self) -> int:
        """Return the number of processes that prepare text."""
        return self.workers or hardware.n_cores()
