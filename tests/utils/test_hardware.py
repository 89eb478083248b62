"""Cores that may be used, and GPUs for which torch has code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmtkit.utils import hardware
from nmtkit.utils.errors import UserError


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
        # A service of systemd: the minimum of its own quota and those of its parents.
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
def test_cores_of_cpu_quota(own: str, files: dict[str, str], expected: int, cgroups: Path) -> None:
    write_files(cgroups, {"own": own, **files})
    assert hardware.n_cores() == expected


def test_threads_of_cpu_quota(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads than the quota allows would slow down the others."""
    write_files(cgroups, {"own": "0::/\n", "cgroup/cpu.max": "200000 100000\n"})
    n_threads = [48]
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads[-1])
    monkeypatch.setattr(torch, "set_num_threads", n_threads.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "48")
    hardware.limit_threads()
    assert n_threads == [48]
    monkeypatch.delenv("OMP_NUM_THREADS")
    hardware.limit_threads()
    assert n_threads == [48, 2]
    hardware.limit_threads()
    assert n_threads == [48, 2]


def test_threads_without_quota(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(cgroups, {"own": "0::/\n", "cgroup/cpu.max": "max 100000\n"})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    monkeypatch.setattr(torch, "set_num_threads", None)
    hardware.limit_threads()


RUN_COMMAND = """
import sys
from contextlib import suppress
from nmtkit.__main__ import main
sys.argv = ["nmtkit", "--version"]
with suppress(SystemExit):
    main()
import torch
"""
IMPORT_CLASS = """
from nmtkit import Translator
import torch
"""
# libgomp's description of itself, as libraries are loaded: the iterations that a thread waits.
SPINCOUNT = re.compile(r"GOMP_SPINCOUNT = '(\d+)'")


@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux only")
@pytest.mark.parametrize("code", [RUN_COMMAND, IMPORT_CLASS])
def test_threads_of_openmp_sleep_on_a_busy_machine(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*hardware.WAITING, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_DISPLAY_ENV", "VERBOSE")
    neighbours = []
    for _ in range(os.cpu_count() or 1):
        neighbours.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
    try:
        command = [sys.executable, "-c", code]
        ended = subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    assert set(SPINCOUNT.findall(ended.stderr)) == {hardware.WAITING["GOMP_SPINCOUNT"]}


@pytest.mark.parametrize(
    ("load", "n_threads", "is_busy"),
    [
        ("1.41 1.79 2.35 1/82 2754\n", 4, False),  # only this thread runs
        ("1.41 1.79 2.35 2/82 2754\n", 4, True),
        ("1.41 1.79 2.35 3/82 2754\n", 2, False),  # the other two cores are free for them
        ("1.41 1.79 2.35 4/82 2754\n", 2, True),
        ("", 4, False),
        (None, 4, False),  # not Linux
    ],
)
def test_waiting_depends_on_other_programs(
    load: str | None,
    n_threads: int,
    is_busy: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hardware, "LOAD", tmp_path / "loadavg")
    monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for name in (*hardware.WAITING, "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # set by the call, and restored after the test
        monkeypatch.delenv(name)
    if load is not None:
        (tmp_path / "loadavg").write_text(load, encoding="utf-8")
    hardware.let_waiting_threads_sleep()
    assert (hardware.WAITING.keys() <= os.environ.keys()) == is_busy


def test_wait_policy_of_user_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hardware, "LOAD", tmp_path / "loadavg")
    (tmp_path / "loadavg").write_text("9.0 9.0 9.0 900/999 1\n", encoding="utf-8")
    for name in hardware.WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    hardware.let_waiting_threads_sleep()
    assert not hardware.WAITING.keys() & os.environ.keys()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setenv("GOMP_SPINCOUNT", "23")
    monkeypatch.setenv("KMP_BLOCKTIME", "")  # set by the next call, and restored after the test
    monkeypatch.delenv("KMP_BLOCKTIME")
    hardware.let_waiting_threads_sleep()
    assert os.environ["GOMP_SPINCOUNT"] == "23"
    assert os.environ["KMP_BLOCKTIME"] == hardware.WAITING["KMP_BLOCKTIME"]


def test_cores_without_control_groups(cgroups: Path) -> None:
    assert not (cgroups / "own").exists()
    assert hardware.n_cores() == 64


def test_gpu_without_code_in_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda_12 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
    cuda_13 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
    volta = (7, 0)
    turing = (7, 5)
    ada = (8, 9)
    thor = (11, 0)
    blackwell = (12, 0)
    later = (13, 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")

    def refusal(gpu: tuple[int, int], archs: str, device: str = "cuda") -> str:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: gpu)
        monkeypatch.setattr(torch.cuda, "get_arch_list", archs.split)
        try:
            hardware.check_has_code(torch.device(device))
        except UserError as error:
            return str(error)
        return ""

    assert "not built for Some GPU, of compute capability 7.0" in refusal(volta, cuda_13)
    assert "/whl/cu126`" in refusal(volta, cuda_13)
    assert "/whl/cu130`" in refusal(blackwell, cuda_12)
    assert f"torch=={torch.__version__.split('+')[0]} " in refusal(blackwell, cuda_12)
    assert "/whl/cu130`" in refusal(turing, "sm_80 sm_90")
    assert refusal(thor, cuda_13)
    for gpu, archs in ((volta, cuda_12), (turing, cuda_13), (ada, cuda_13), (later, cuda_13)):
        assert refusal(gpu, archs) == ""
    assert refusal((9, 4), "gfx906 gfx942") == refusal(volta, cuda_13, "cpu") == ""


@pytest.mark.parametrize(("n_cores", "expected"), [(6, 6), (None, 1)])
def test_cores_without_affinity(
    n_cores: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    monkeypatch.setattr(hardware, "OWN_CGROUPS", Path("missing"))
    monkeypatch.setattr(hardware, "CGROUPS", Path("missing"))
    assert hardware.n_cores() == expected


def test_name_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    assert hardware.device_name(torch.device("cpu")) == "CPU"
    assert hardware.device_name(torch.device("cuda", 1)) == "Some GPU"
