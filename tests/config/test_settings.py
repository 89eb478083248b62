"""What the machine is asked for and what it has."""

import os
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


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_auto_is_the_cpu_where_there_is_no_gpu_but_not_where_torch_cannot_use_it(
    monkeypatch: pytest.MonkeyPatch, why: str, is_broken: bool
) -> None:
    def init() -> None:
        raise RuntimeError(f"{why}\nsomewhere in C++")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    if is_broken:
        with pytest.raises(
            UserError, match=r"^torch cannot use the GPU of this machine"
        ) as refused:
            MACHINE.torch_device()
        assert why in str(refused.value)
        assert "C++" not in str(refused.value)
    else:
        assert MACHINE.torch_device() == torch.device("cpu")
    assert replace(MACHINE, device="cpu").torch_device() == torch.device("cpu")


def test_precision_is_bfloat16_where_a_gpu_computes_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for has_it, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has_it=has_it, **_: has_it)
        assert MACHINE.torch_dtype(cuda) == expected
    assert MACHINE.torch_dtype(cpu) == torch.float32
    assert replace(MACHINE, dtype="bfloat16").torch_dtype(cpu) == torch.bfloat16


def test_precision_without_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for decides; else a GPU that only emulates bfloat16 computes in float32."""
    cuda = torch.device("cuda")
    asked = []

    def is_supported(*, including_emulation: bool) -> bool:
        asked.append(including_emulation)
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_supported)
    assert MACHINE.torch_dtype(cuda) == torch.float32
    assert replace(MACHINE, dtype="float32").torch_dtype(cuda) == torch.float32
    assert MACHINE.torch_dtype(torch.device("cpu")) == torch.float32
    assert replace(MACHINE, dtype="bfloat16").torch_dtype(cuda) == torch.bfloat16
    assert asked == [False]


@pytest.mark.parametrize(
    ("name", "is_there", "current"),
    [
        ("cuda:1", True, ["cuda:1"]),
        ("cuda", True, []),
        ("cpu:0", True, []),
        ("cuda:2", True, None),
        ("cuda:0", False, None),
        ("toaster", True, None),
    ],
)
def test_device_by_number(
    name: str, is_there: bool, current: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: used.append(str(device)))
    asked = replace(MACHINE, device=name)
    if current is None:
        with pytest.raises(UserError, match=f"--device {name}"):
            asked.torch_device()
    else:
        assert asked.torch_device() == torch.device(name)
        assert used == current


@pytest.mark.gpu
def test_a_numbered_gpu_is_the_one_that_is_used() -> None:
    device = replace(MACHINE, device="cuda:0").torch_device()
    assert torch.cuda.current_device() == device.index == 0
    assert MACHINE.torch_device().type == "cuda"


@pytest.mark.parametrize("name", ["toaster", "cpu:x", "", "CUDA", "cuda:-1"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"^--device {name} is not a device; use --device cpu"):
        replace(MACHINE, device=name).torch_device()


@pytest.mark.parametrize("name", ["mps", "mps:0", "xpu", "xpu:1", "meta", "hpu", "xla"])
def test_device_without_support_is_refused(name: str) -> None:
    kind = name.partition(":")[0]
    with pytest.raises(UserError, match=f"^nmtkit has no support for {kind}; use --device cpu$"):
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
def test_missing_gpu_is_refused_with_the_drivers_reason(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init() -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    reason = re.escape(str(error).split("\n")[0])
    with pytest.raises(UserError, match=rf"^--device {name} .*\({reason}\); .*--device cpu$"):
        replace(MACHINE, device=name).torch_device()


def test_gpu_with_a_number_too_high_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match=r"--device cuda:2 .* has 2 GPUs.*use --device cuda:1"):
        replace(MACHINE, device="cuda:2").check()


# Cores


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 cores, and the folder of its control groups."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(hardware, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path / "cgroup")
    return tmp_path


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


V1 = "7:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n"
V1_PLACE = "cgroup/cpu,cpuacct"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"cgroup/cpu.max": "150000 100000\n"}, 2),  # a part counts as a core
        ("0::/\n", {"cgroup/cpu.max": "1000 100000\n"}, 1),
        ("0::/\n", {"cgroup/cpu.max": "9900000 100000\n"}, 64),
        ("0::/\n", {"cgroup/cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cgroup/cpu.max": ""}, 64),
        ("0::/\n", {"cgroup/cpu.max": "100000 0\n"}, 64),
        # A service of systemd: the lowest of its own and of those around it.
        (
            "0::/a.slice/b.service\n",
            {
                "cgroup/a.slice/cpu.max": "300000 100000",
                "cgroup/a.slice/b.service/cpu.max": "max 9",
            },
            3,
        ),
        # A container that sees the host's path.
        ("0::/docker/ab\n", {"cgroup/cpu.max": "400000 100000\n"}, 4),
        ("0::/../..\n", {"cgroup/cpu.max": "400000 100000\n", "cpu.max": "100000 100000"}, 4),
        (V1, {f"{V1_PLACE}/cpu.cfs_quota_us": "-1", f"{V1_PLACE}/cpu.cfs_period_us": "100000"}, 64),
        (
            V1,
            {
                f"{V1_PLACE}/docker/ab/cpu.cfs_quota_us": "250000\n",
                f"{V1_PLACE}/docker/ab/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            "0::/\n",
            {"cgroup/cpu/cpu.cfs_quota_us": "50000", "cgroup/cpu/cpu.cfs_period_us": "100000"},
            1,
        ),
        ("", {}, 64),
    ],
)
def test_cores_are_those_of_the_cpu_quota(
    own: str, files: dict[str, str], expected: int, cgroups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(cgroups, {"own": own, **files})
    assert hardware.n_cores() == MACHINE.n_workers() == expected
    assert replace(MACHINE, workers=5).n_workers() == 5
    # Threads that a quota leaves no time for would hold up the others.
    threads = [48]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "48")
    on_cpu = replace(MACHINE, device="cpu")
    on_cpu.torch_device()
    assert threads == [48]
    monkeypatch.delenv("OMP_NUM_THREADS")
    on_cpu.torch_device()
    assert threads[-1] == min(48, expected)


def test_cores_are_counted_without_control_groups(cgroups: Path) -> None:
    assert not (cgroups / "own").exists()
    assert hardware.n_cores() == 64


def test_gpu_for_which_torch_has_no_code_is_one_sentence_with_the_right_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda_12 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
    cuda_13 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
    volta, turing, ada, thor, blackwell, later = (7, 0), (7, 5), (8, 9), (11, 0), (12, 0), (13, 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")

    def refusal(gpu: tuple[int, int], archs: str, device: str = "cuda") -> str:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: gpu)
        monkeypatch.setattr(torch.cuda, "get_arch_list", archs.split)
        try:
            hardware.check_has_code(torch.device(device))
        except UserError as error:
            return str(error)
        return ""

    assert "no code for Some GPU, of compute capability 7.0" in refusal(volta, cuda_13)
    assert "/whl/cu126`" in refusal(volta, cuda_13)
    assert "/whl/cu130`" in refusal(blackwell, cuda_12)
    assert f"torch=={torch.__version__.split('+')[0]} " in refusal(blackwell, cuda_12)
    assert "/whl/cu130`" in refusal(turing, "sm_80 sm_90")
    assert refusal(thor, cuda_13)
    for gpu, archs in ((volta, cuda_12), (turing, cuda_13), (ada, cuda_13), (later, cuda_13)):
        assert refusal(gpu, archs) == ""
    assert refusal((9, 4), "gfx906 gfx942") == refusal(volta, cuda_13, "cpu") == ""


def test_one_process_trains_unless_more_are_asked_for_and_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MACHINE.n_processes() == 1
    monkeypatch.setattr(hardware, "n_cores", lambda: 2)
    assert replace(MACHINE, device="cpu", processes=8).n_processes() == 8
    with pytest.raises(UserError, match=r"^--processes 9 is more than the 8 \(4 a core\).*sses 8,"):
        replace(MACHINE, device="cpu", processes=9).n_processes()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert MACHINE.n_processes() == 1
    assert replace(MACHINE, processes=8).n_processes() == 8
    with pytest.raises(UserError, match=r"^--processes 9 is more than the 8 CUDA devices of --dev"):
        replace(MACHINE, processes=9).n_processes()
    with pytest.raises(UserError, match=r"^--processes 2 is more than the 1 CUDA devices of --dev"):
        replace(MACHINE, device="cuda:3", processes=2).n_processes()


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:1"])
def test_nothing_computes_on_a_gpu_to_check_the_options(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A CUDA context would take memory in the process that only watches those that train."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for module, needs_context in (
        *((torch, each) for each in ("empty", "zeros", "ones", "tensor")),
        *((torch.cuda, each) for each in ("set_device", "init", "get_device_properties")),
    ):
        monkeypatch.setattr(module, needs_context, None)
    asked = replace(MACHINE, device=name, processes=1 if name == "cuda:1" else 2)
    asked.check()
    assert asked.n_processes() == asked.processes


def test_tensorboard_that_is_not_installed_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"needs a package .* `pip install tensorboard`"):
        replace(MACHINE, tensorboard=Path("events")).check()


def test_options_that_are_left_out_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    MACHINE.check()


@pytest.mark.parametrize(
    ("option", "value"), [("device", "toaster"), ("processes", 10**6), ("tensorboard", Path("a"))]
)
def test_check_refuses_each_option(
    option: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda _: None)
    on_cpu = replace(MACHINE, device="cpu")
    on_cpu.check()
    with pytest.raises(UserError, match=f"--{option}"):
        replace(on_cpu, **{option: value}).check()  # type: ignore[arg-type]


def test_options_are_those_of_the_command_line() -> None:
    asked = replace(MACHINE, device="cpu", max_tokens=1, processes=3, deterministic=True)
    options = asked.options(exclude=["device", "tensorboard"])
    assert options == ["--runs-dir=runs", "--max-tokens=1", "--processes=3", "--deterministic"]
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
def test_system_without_file_locks_is_named(
    code: str, arguments: list[str], tmp_path: Path
) -> None:
    """As on Windows, where Python has none of the modules that are blocked here."""
    command = [sys.executable, "-c", WITHOUT_FCNTL + code, "-", *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    last = ended.stderr.removesuffix("\n").split("\n")[-1]
    assert re.search("nmtkit runs on Linux and macOS; on Windows use WSL$", last)
    if code == RUN_COMMAND:
        assert ended.stderr.count("\n") == 1
        assert ended.stdout == ""
    else:
        assert last.startswith("ImportError: ")
    if code == IMPORT_CLASS:
        assert ended.stdout == f"{nmtkit.__version__}\n"


def test_workers_are_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "n_cores", lambda: 3)
    assert MACHINE.n_workers() == 3
    assert replace(MACHINE, workers=5).n_workers() == 5


@pytest.mark.parametrize(("n_cores", "expected"), [(6, 6), (None, 1)])
def test_cores_without_affinity(
    n_cores: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    monkeypatch.setattr(hardware, "OWN_CGROUPS", Path("missing"))
    monkeypatch.setattr(hardware, "CGROUPS", Path("missing"))
    assert MACHINE.n_workers() == expected


def test_downloads_are_next_to_the_artifacts() -> None:
    assert Path("runs") == settings.RUNS
    assert Settings(Path("a")).downloads_dir == Path("a", "downloads")
