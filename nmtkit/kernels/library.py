"""Compile the kernels for this processor at first use, and load them."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
SOURCES = ("attention.cpp", "norm.cpp", "search.cpp")
HEADERS = ("vectors.h",)
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
)
SECONDS = 60  # a limit; compiling usually takes one
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
INT, FLOAT = ctypes.c_int64, ctypes.c_float
# Arguments of each kernel: addresses of tensors, sizes and strides in elements, others.
ARGUMENTS = {
    "attend": [INT] * 15,
    "append": [INT] * 12,
    "select": [INT] * 10,
    "move": [INT] * 5,
    "add_norm": [INT] * 7 + [FLOAT],
    "log_softmax": [INT] * 6,
    "continuations": [INT] * 11,
}
CPUINFO = Path("/proc/cpuinfo")
_LOCK = Lock()  # threads that translate would compile the same


def kernel_for(name: str, tensor: Tensor) -> Callable[..., None] | None:
    """Return the kernel `name` for tensors like this one, or None if torch has to do without."""
    if not tensor.is_cpu or tensor.dtype not in DTYPES:
        return None
    if (kernels := library()) is None:
        return None
    kernel: Callable[..., None] = getattr(kernels, f"{name}_{DTYPES[tensor.dtype]}")
    return kernel


def library() -> ctypes.CDLL | None:
    """Return the kernels, or None where they cannot be compiled or loaded.

    They are compiled once per user and kind of processor, and kept in `cache_folder`.
    """
    with _LOCK:
        return _library()


@cache
def _library() -> ctypes.CDLL | None:
    try:
        place = cache_folder() / f"{_fingerprint()}.so"
        if not place.exists():
            _compile(place)
        try:
            loaded = _load(place)
        except OSError:  # damaged
            _compile(place)
            loaded = _load(place)
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: no home
        return None
    for name, arguments in ARGUMENTS.items():
        for dtype in DTYPES.values():
            if hasattr(loaded, f"{name}_{dtype}"):
                kernel = getattr(loaded, f"{name}_{dtype}")
                kernel.argtypes = arguments
                kernel.restype = None
    return loaded


def cache_folder() -> Path:
    """Return the folder that compiled kernels are kept in, which may be deleted at any time.

    Raises:
        RuntimeError: There is no home directory.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nmtkit" / "kernels"


def _compile(place: Path) -> None:
    """Compile the kernels to the file `place`, which appears whole.

    Raises:
        OSError: There is no compiler, or the folder is not writable.
        subprocess.SubprocessError: The compiler fails.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise FileNotFoundError
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        draft = Path(folder) / place.name
        sources = [FOLDER / name for name in SOURCES]
        subprocess.run(  # noqa: S603
            [compiler, *FLAGS, *sources, "-o", draft],
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        draft.chmod(0o700)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(place)


def _load(place: Path) -> ctypes.CDLL:
    """Load compiled kernels, but not a file that another user could have written."""
    facts = place.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise PermissionError
    return ctypes.CDLL(str(place))


def _fingerprint() -> str:
    """Return the hash of what the compiled kernels depend on."""
    digest = hashlib.sha256(repr((FLAGS, platform.machine(), _processor())).encode())
    for name in (*SOURCES, *HEADERS):
        digest.update((FOLDER / name).read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> list[str]:
    """Return what tells kinds of processors apart."""
    try:
        described = CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system
        return [platform.processor()]
    of_first_core = described.split("\n\n", 1)[0].split("\n")
    names = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU ")
    return [line for line in of_first_core if line.startswith(names)]
