"""What the machine is asked for and what it has."""

import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmtkit import machine
from nmtkit.errors import UserError
from nmtkit.machine import Machine

MACHINE = Machine(Path("runs"))


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
        ("xpu", True, None),
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


@pytest.mark.parametrize("name", ["cuda:99", "meta", "mps", "xpu", "toaster", "cpu:x", ""])
def test_device_that_is_not_there_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match=f"^--device {name} is not available .* use --device cpu, "):
        replace(MACHINE, device=name).torch_device()


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
            machine.check_has_code(torch.device(device))
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
    monkeypatch.setattr(machine, "_n_cores", lambda: 2)
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
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"needs a package .* `pip install nmtkit\[tensorboard\]`"):
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
    monkeypatch.setattr(machine, "find_spec", lambda _: None)
    on_cpu = replace(MACHINE, device="cpu")
    on_cpu.check()
    with pytest.raises(UserError, match=f"--{option}"):
        replace(on_cpu, **{option: value}).check()  # type: ignore[arg-type]


def test_options_are_those_of_the_command_line() -> None:
    asked = replace(MACHINE, device="cpu", max_tokens=1, processes=3, deterministic=True)
    options = asked.options(besides=["device", "tensorboard"])
    assert options == ["--runs-dir=runs", "--max-tokens=1", "--processes=3", "--deterministic"]
    assert MACHINE.options() == ["--runs-dir=runs"]


HALF_BUSY = "cpu0 9 0 0 3 2 0 0 0\ncpu1 5 0 0 9 0 0 0 0\ncpu2 0 0 0 9 0 0 0 0"


@pytest.mark.parametrize(
    ("second", "n_threads", "told"),
    [  # of which this process may use cores 0 and 1
        (HALF_BUSY, 2, "keep 1.0 of 2 cores"),
        (HALF_BUSY, 1, None),
        ("cpu0 0 0 0 9 5 0 0 0 7\ncpu1 1 0 0 9 0 0 0 0 7\ncpu2 9 0 0 0 0 0 0 0 0", 2, None),
        ("cpu0 0 0 0 6 0 3 0 0\ncpu1 0 0 0 9 0 0 0 0", 2, None),
        ("cpu0 0 0 0 0 0 9 0 0\ncpu1 0 0 0 9 0 0 0 0", 2, "keep 1.0 of 2 cores"),
        ("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0", 2, None),
        ("intr 1", 2, None),
    ],
)
def test_cores_that_others_keep_busy_are_told_where_that_is_known(
    second: str, n_threads: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(machine, "STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _: stat.write_text(second, encoding="utf-8"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    on_cpu = replace(MACHINE, device="cpu")
    assert on_cpu.crowd_note("nmtkit train demo") is None  # there is no such file
    stat.write_text(re.sub(r"\b\d+\b", "0", second), encoding="utf-8")
    note = on_cpu.crowd_note("nmtkit train demo")
    assert note is None if told is None else told in str(note)
    assert told is None or "`OMP_NUM_THREADS=1 nmtkit train demo`" in str(note)


@pytest.mark.parametrize(
    ("busy", "n_threads", "is_noted", "fewer"),
    [
        (0.99, 4, False, None),
        (1.0, 4, True, 3),
        (1.0, 3, False, None),
        (1.4, 3, True, None),  # the nearest number of threads is the present one
        (3.9, 4, True, 1),
        (3.9, 1, True, None),
    ],
)
def test_crowd_note_has_a_threshold(
    busy: float,
    n_threads: int,
    is_noted: bool,
    fewer: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "_n_cores", lambda: 4)
    monkeypatch.setattr(machine, "_busy_cores", lambda: busy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    note = replace(MACHINE, device="cpu").crowd_note("nmtkit train demo")
    assert (note is not None) is is_noted
    assert re.findall(r"OMP_NUM_THREADS=(\d+)", note or "") == ([str(fewer)] if fewer else [])


def test_crowd_note_is_about_the_cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "_n_cores", lambda: 4)
    monkeypatch.setattr(machine, "_busy_cores", lambda: 4.0)
    assert MACHINE.crowd_note("nmtkit train demo") is None


def test_workers_are_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_n_cores", lambda: 3)
    assert MACHINE.n_workers() == 3
    assert replace(MACHINE, workers=5).n_workers() == 5


@pytest.mark.parametrize(("n_cores", "expected"), [(6, 6), (None, 1)])
def test_cores_without_affinity(
    n_cores: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: n_cores)
    assert MACHINE.n_workers() == expected


def test_downloads_are_next_to_the_artifacts() -> None:
    assert machine.RUNS.name == "runs"
    assert Machine(Path("a")).downloads_dir == Path("a", "downloads")
