"""This machine: its system, the cores that may be used, and the GPU as torch sees it."""

import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted, quote

if TYPE_CHECKING:
    import torch

# Linux: the control groups of this process, and the folder of their limits.
OWN_CGROUPS = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
# The oldest GPUs that torch's wheels for CUDA 13 have code for; those for 12.6 have older ones.
TURING = (7, 5)
# Linux: the load, and the number of threads that run or could run.
LOAD = Path("/proc/loadavg")
SAMPLE_S = 0.005  # between two looks at it
# On a busy machine: how long a thread of OpenMP that waits for the others keeps its core before it
# sleeps. The variables are those of GNU's library (iterations of a loop) and of LLVM's (ms).
WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "0"}
# Torch's messages without code for GPUs, without a driver, or without a GPU that this process may
# use.
NO_GPU = ("not compiled with CUDA", "no NVIDIA driver", "No CUDA GPUs", "forked subprocess")


def check_system() -> None:
    """Check that this system has the file locks of Unix; no artifact is published without them.

    Raises:
        ImportError: It does not have them.
    """
    try:
        import_module("fcntl")
    except ImportError:
        raise ImportError("nmtkit runs on Linux and macOS; on Windows use WSL") from None


# Cores


def n_cores() -> int:
    """Return the number of cores to compute on: those allowed, or fewer if a quota is lower."""
    quota = _cpu_quota()
    if quota is None:
        return _n_allowed_cores()
    return min(_n_allowed_cores(), max(1, math.ceil(quota)))


def n_threads() -> int:
    """Return the number of threads to compute with: OMP_NUM_THREADS, or one for each core."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    set_by_user = int(setting) if setting.isdecimal() else 0
    return set_by_user or n_cores()


def _n_allowed_cores() -> int:
    """Return the number of cores that this process may run on, regardless of its quota."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    """Yield the folders of this process's control groups, and of the groups that contain them."""
    try:
        text = OWN_CGROUPS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return
    for line in text.removesuffix("\n").split("\n"):
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / controllers  # for version 2, without controllers, it is CGROUPS itself
        # In a container, the path may be the host's, or lead outside of the part that the container
        # sees; its limits are those of the root.
        folder = root if ".." in path else root / path.lstrip("/")
        while folder != root and folder.is_relative_to(root):
            yield folder
            folder = folder.parent
        yield root
    yield CGROUPS / "cpu"  # version 1, where the first file does not name its controllers


def let_waiting_threads_sleep() -> None:
    """On a busy machine, let threads of OpenMP sleep while they wait for one another.

    By default, they wait in a loop, which is fastest if nothing else runs. If another program has
    one of the cores, the loops take the time that the last thread needs to finish, and all of them
    wait for it. Numbers of threads and results stay the same. The variables are read when torch is
    imported; those that the user has set are kept.
    """
    if "OMP_WAIT_POLICY" not in os.environ and _is_busy():
        for name, value in WAITING.items():
            os.environ.setdefault(name, value)


def _is_busy() -> bool:
    """Return whether other programs run that leave fewer cores than `n_threads`.

    The other processes of a training are such programs, too. A program that runs for a moment only
    is not counted. Without /proc, the answer is no.
    """
    others = []
    for delay_s in (0.0, SAMPLE_S):
        time.sleep(delay_s)
        try:
            running = LOAD.read_text(encoding="utf-8").split()[3]  # such as "2/345"
            others.append(int(running.partition("/")[0]) - 1)  # without this thread
        except (OSError, ValueError, IndexError):
            return False
    return min(others) + n_threads() > (os.cpu_count() or 1)


def limit_threads() -> None:
    """Limit torch's threads to the cores of a quota, unless the user sets OMP_NUM_THREADS.

    With more threads, the system would stop all of them for most of the time, in the middle of
    their work.
    """
    import torch

    quota = _cpu_quota()
    if quota is None or "OMP_NUM_THREADS" in os.environ:
        return
    if torch.get_num_threads() > n_cores():
        torch.set_num_threads(n_cores())


def has_bfloat16_instructions() -> bool:
    """Return whether this CPU multiplies matrices in bfloat16, with AVX-512 or AMX."""
    import torch

    # oneDNN uses the instructions.
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


# GPUs


def find_device(name: str) -> "torch.device":
    """Return the device to compute on.

    It creates no CUDA context, because that would take memory on the GPU.

    Args:
        name: The value of --device: "auto", or a name that torch knows.

    Raises:
        UserError: This machine does not have the device, or torch cannot use it.
    """
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        # A GPU that torch cannot use, for example because of an old driver, is not ignored.
        reason = _gpu_error()
        if reason and not any(message in reason for message in NO_GPU):
            raise UserError(
                f"torch cannot use the GPU of this machine ({reason}); fix this, or use --device "
                "cpu"
            )
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:  # its message lists dozens of names, few of them for users
        meant = ""
        if name.isdecimal():
            meant = f" (did you mean cuda:{name}?)"
        elif name.lower().startswith(("gpu", "nvidia", "cuda")):
            meant = " (did you mean cuda?)"
        raise UserError(
            f"--device {quote(name)} is not a device{meant}; use --device cpu, cuda or cuda:N"
        ) from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise UserError(f"--device {device.type} is not supported; use --device cpu or cuda")
    if not torch.cuda.is_available():
        reason = _gpu_error() or "torch finds no GPU"
        raise UserError(
            f"--device {name} is not available ({reason}); fix this, or use --device cpu"
        )
    n_gpus = torch.cuda.device_count()
    if device.index is not None and device.index >= n_gpus:
        raise UserError(
            f"--device {name} is not available: this machine has {counted(n_gpus, 'GPU')}, "
            f"counted from 0; use --device cuda:{n_gpus - 1} or lower, or --device cpu"
        )
    return device


def device_name(device: "torch.device") -> str:
    """Return the product name of a GPU, or "CPU"."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def check_has_code(device: "torch.device") -> None:
    """Check that torch has code for a GPU. Call it in the process that will compute on the GPU.

    Code for sm_75 runs on GPUs of the same major version whose minor version is not lower, code for
    compute_75 on all that are not older.

    Raises:
        UserError: It has none; the message names the package index of a suitable torch.
    """
    import torch

    codes = re.findall(r"(sm|compute)_(\d+)(\d)\b", " ".join(torch.cuda.get_arch_list()))
    if device.type != "cuda" or not codes:  # GPUs of other makers have none
        return
    gpu = torch.cuda.get_device_capability(device)
    for kind, major, minor in codes:
        version = (int(major), int(minor))
        if version <= gpu and (kind == "compute" or version[0] == gpu[0]):
            return
    torch_version = torch.__version__.split("+")[0]
    index = "cu126" if gpu < TURING else "cu130"
    raise UserError(
        f"torch {torch.__version__} is not built for {torch.cuda.get_device_name(device)}, of "
        f"compute capability {gpu[0]}.{gpu[1]}; run `pip install --force-reinstall "
        f"torch=={torch_version} --index-url https://download.pytorch.org/whl/{index}`, or use "
        "--device cpu"
    )


def _gpu_error() -> str | None:
    """Return the reason why torch cannot use a GPU, or None if it can."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:  # the former if torch is built without CUDA
        return str(error).split("\n")[0]
    return None
