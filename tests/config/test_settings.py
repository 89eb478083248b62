"""Execution settings, and the devices that this machine has."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import nmtkit
from nmtkit.config import settings
from nmtkit.config.settings import Settings
from nmtkit.utils import hardware
from nmtkit.utils.errors import UserError

MACHINE = Settings(Path("runs"))


def test_auto_device_is_gpu_if_present(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, expected in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert MACHINE.torch_device() == torch.device(expected)


@pytest.mark.parametrize(
    ("why", "is_broken"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040). Please", True),
        ("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet", True),
        ("Found no NVIDIA driver on your system.", False),
        ("No CUDA GPUs are available", False),
        ("Cannot re-initialize CUDA in forked subprocess.", False),
    ],
)
def test_broken_gpu_is_not_replaced_by_cpu(
    monkeypatch: pytest.MonkeyPatch, why: str, is_broken: bool
) -> None:
    def init() -> None:
        raise RuntimeError(f"{why}\nsomewhere in C++")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    if is_broken:
        with pytest.raises(UserError, match="GPU") as refused:
            MACHINE.torch_device()
        assert why in str(refused.value)
        assert "C++" not in str(refused.value)
    else:
        assert MACHINE.torch_device() == torch.device("cpu")
    assert replace(MACHINE, device="cpu").torch_device() == torch.device("cpu")


def test_gpu_precision_depends_on_support(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    for is_supported, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda is_supported=is_supported, **_: is_supported
        )
        assert MACHINE.torch_dtype(cuda) == expected
        assert MACHINE.torch_dtype(cuda, d_model=8) == expected


@pytest.mark.parametrize(
    ("instructions", "has_onednn", "d_model", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True, 256, torch.bfloat16),
        ({"avx512_bf16": False, "amx_bf16": True}, True, 1_024, torch.bfloat16),
        ({"avx512_bf16": True, "amx_bf16": True}, True, 255, torch.float32),
        ({"avx512_bf16": True, "amx_bf16": True}, True, None, torch.float32),
        ({"avx512_bf16": True, "amx_bf16": True}, False, 512, torch.float32),
        ({"avx512_bf16": False, "amx_bf16": False, "avx512_f": True}, True, 512, torch.float32),
        ({"architecture": "aarch64", "bf16": True}, True, 512, torch.float32),
    ],
)
def test_cpu_precision_depends_on_width(
    monkeypatch: pytest.MonkeyPatch,
    instructions: dict[str, object],
    has_onednn: bool,
    d_model: int | None,
    expected: torch.dtype,
) -> None:
    """In a narrow model, or without instructions, bfloat16 is not faster."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: instructions)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has_onednn)
    cpu = torch.device("cpu")
    assert MACHINE.torch_dtype(cpu, d_model) == expected
    for dtype in ("float32", "bfloat16", "float16"):
        assert replace(MACHINE, dtype=dtype).torch_dtype(cpu, d_model) == getattr(torch, dtype)


def test_precision_without_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, a GPU that only emulates bfloat16 uses float32; --dtype overrides that."""
    cuda = torch.device("cuda")
    calls = []

    def is_supported(*, including_emulation: bool) -> bool:
        calls.append(including_emulation)
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert MACHINE.torch_dtype(cuda) == torch.float32
    assert replace(MACHINE, dtype="float32").torch_dtype(cuda) == torch.float32
    assert MACHINE.torch_dtype(torch.device("cpu")) == torch.float32
    assert replace(MACHINE, dtype="bfloat16").torch_dtype(cuda) == torch.bfloat16
    assert calls == [False]


@pytest.mark.parametrize(
    ("name", "current"),
    [
        ("cuda:1", ["cuda:1"]),
        ("cuda", []),
        ("cpu:0", []),
    ],
)
def test_device_by_number(name: str, current: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: used.append(str(device)))
    assert replace(MACHINE, device=name).torch_device() == torch.device(name)
    assert used == current


@pytest.mark.gpu
def test_gpu_by_number() -> None:
    device = replace(MACHINE, device="cuda:0").torch_device()
    assert torch.cuda.current_device() == device.index == 0
    assert MACHINE.torch_device().type == "cuda"


@pytest.mark.parametrize("name", ["toaster", "cpu:x", "", "CUDA", "cuda:-1"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"^--device '{name}' is not a device.*; use --device cpu"):
        replace(MACHINE, device=name).torch_device()


@pytest.mark.parametrize("name", ["mps", "mps:0", "xpu", "xpu:1", "meta", "hpu", "xla"])
def test_device_without_support_is_refused(name: str) -> None:
    kind = name.partition(":")[0]
    with pytest.raises(UserError, match=f"{kind} is not supported; .*--device cpu"):
        replace(MACHINE, device=name).torch_device()


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:99"])
@pytest.mark.parametrize(
    "error",
    [
        AssertionError("Torch not compiled with CUDA enabled"),
        RuntimeError("Found no NVIDIA driver on your system. Please check\nsomewhere in C++"),
        RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 802: not yet initialized"),
    ],
)
def test_missing_gpu_names_driver_error(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    reason = re.escape(str(error).split("\n")[0])
    with pytest.raises(UserError, match=rf"^--device {name} .*\({reason}\); .*--device cpu$"):
        replace(MACHINE, device=name).torch_device()


def test_gpu_number_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"--device cuda:2 .* has 2 GPUs.*--device cuda:1"):
        replace(MACHINE, device="cuda:2").check()


def test_number_of_processes_on_cpu() -> None:
    assert MACHINE.n_processes() == 1
    most = 4 * hardware.n_cores()
    assert replace(MACHINE, device="cpu", processes=most).n_processes() == most
    with pytest.raises(UserError, match=rf"--processes {most + 1} .* maximum of {most:,} "):
        replace(MACHINE, device="cpu", processes=most + 1).n_processes()


def test_number_of_processes_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert MACHINE.n_processes() == 1
    assert replace(MACHINE, processes=8).n_processes() == 8
    with pytest.raises(UserError, match=r"--processes 9 .*\b8 CUDA devices"):
        replace(MACHINE, processes=9).n_processes()
    with pytest.raises(UserError, match=r"--processes 2 .*\b1 CUDA device"):
        replace(MACHINE, device="cuda:3", processes=2).n_processes()


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:1"])
def test_check_creates_no_cuda_context(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A CUDA context in the launcher would take memory of the GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    # None of the functions that create a context may be called.
    for function in ("empty", "zeros", "ones", "tensor"):
        monkeypatch.setattr(torch, function, None)
    for function in ("set_device", "init", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, function, None)
    machine = replace(MACHINE, device=name, processes=1 if name == "cuda:1" else 2)
    machine.check()
    assert machine.n_processes() == machine.processes


def test_missing_tensorboard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UserError, match="`pip install tensorboard`"):
        replace(MACHINE, tensorboard=Path("events")).check()


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_check_needs_no_torch(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    replace(MACHINE, device=device).check()


@pytest.mark.parametrize(
    ("option", "value"), [("device", "toaster"), ("processes", 10**6), ("tensorboard", Path("a"))]
)
def test_check_refuses_each_option(
    option: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    on_cpu = replace(MACHINE, device="cpu")
    on_cpu.check()
    with pytest.raises(UserError, match=f"--{option}"):
        replace(on_cpu, **{option: value}).check()  # type: ignore[arg-type]


def test_options_for_command_line() -> None:
    machine = replace(MACHINE, workers=2, max_tokens=1, processes=3, deterministic=True)
    train_options = ["--max-tokens=1", "--processes=3", "--deterministic"]
    assert machine.options("prepare") == ["--runs-dir=runs", "--workers=2"]
    assert machine.options("train") == ["--runs-dir=runs", *train_options]
    assert sorted(machine.options()) == sorted(["--runs-dir=runs", "--workers=2", *train_options])
    assert MACHINE.options() == ["--runs-dir=runs"]


WITHOUT_FCNTL = """
import sys

class Blocker:
    def find_spec(self, name, *_):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Blocker())
sys.argv = ["nmtkit", *sys.argv[2:]]
"""
RUN_COMMAND = "from nmtkit.__main__ import main\nmain()\n"
IMPORT_CLASS = "import nmtkit\nprint(nmtkit.__version__)\nnmtkit.Translator\n"


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (RUN_COMMAND, ["--help"]),
        (RUN_COMMAND, ["--version"]),
        (RUN_COMMAND, ["run", "demo"]),
        (RUN_COMMAND, []),
        (IMPORT_CLASS, []),
        ("from nmtkit import Translator\n", []),
    ],
)
def test_windows_is_refused(code: str, arguments: list[str], tmp_path: Path) -> None:
    """On Windows, Python has none of the modules that are blocked here."""
    command = [sys.executable, "-c", WITHOUT_FCNTL + code, "-", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    last = ended.stderr.removesuffix("\n").split("\n")[-1]
    assert "Linux and macOS" in last
    assert "WSL" in last
    if code == RUN_COMMAND:
        assert ended.stderr.count("\n") == 1
        assert ended.stdout == ""
    else:
        assert last.startswith("ImportError: ")
    if code == IMPORT_CLASS:
        assert ended.stdout == f"{nmtkit.__version__}\n"


def test_workers_are_one_per_core() -> None:
    assert MACHINE.n_workers() == hardware.n_cores()
    n_workers = hardware.n_cores() + 2
    assert replace(MACHINE, workers=n_workers).n_workers() == n_workers


def test_device_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(hardware, "limit_threads", lambda: calls.append("limit"))
    replace(MACHINE, device="cpu").torch_device()
    assert calls == ["limit"]


def test_downloads_folder() -> None:
    assert Path("runs") == settings.RUNS
    assert Settings(Path("a")).downloads_dir == Path("a", "downloads")
