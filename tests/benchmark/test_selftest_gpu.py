"""selftest --gpu: on this machine without a GPU, and its checks of GPUs with stand-ins for them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from system.command import environment
from torch import Tensor

from nmtkit.benchmark import selftest_gpu as command
from nmtkit.cli.selftest import LOSSES, Check
from nmtkit.config.settings import Settings
from nmtkit.fast.bins import bin_attention
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.metrics import write_metrics
from nmtkit.utils.errors import UserError

CPU = torch.device("cpu")


def test_without_a_gpu_several_processes_are_proved_on_the_cpu(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "nmtkit", "selftest", "--gpu", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout
    found = {each["what"]: each for each in json.loads(ended.stdout)}
    assert {each["state"] for each in found.values()} <= {"held", "noted", "skipped"}
    assert found["GPU"]["state"] == "skipped"
    for n in (2, 3):
        assert found[f"sum, {n} x cpu"]["figures"]["bytes_per_second"] > 1e6
    first, *others = (found[f"demo, {n} x cpu"]["figures"] for n in (1, 2, 3))
    for each in others:
        assert {*each} == {*first}
        early = [name for name in first if int(name.removeprefix("loss_")) <= 20]
        assert [each[name] for name in early] == pytest.approx(
            [first[name] for name in early], rel=1e-4
        )
    assert not list(tmp_path.iterdir())
    assert all(what in ended.stderr for what in found)  # told while it runs


# One device


def test_products_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    command.products(CPU, torch.bfloat16)
    monkeypatch.setitem(command.OF_PRODUCTS, torch.float32, 1e-9)  # as if it were TensorFloat-32
    with pytest.raises(UserError, match="off by"):
        command.products(CPU, torch.float32)


def test_a_figure_that_is_no_number_is_not_near() -> None:
    one = torch.ones(2)
    command._check_near(one, one, 0.0)
    with pytest.raises(UserError):
        command._check_near(one * torch.nan, one, 1.0)


def test_attention_compares_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "N_BINS", 2)
    monkeypatch.setattr(command, "BIN_LENGTH", 64)
    assert command.attention(CPU)[1]["attention_ms"] > 0
    genuine = bin_attention

    def with_wrong_gradient(q: Tensor, *others: Any) -> Tensor:
        return genuine(2 * q - q.detach(), *others)

    def without_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
        return genuine(q, k, v, torch.ones_like(mask), dropout)

    for wrong in (with_wrong_gradient, without_mask):
        monkeypatch.setattr(command, "bin_attention", wrong)
        with pytest.raises(UserError, match="off by"):
            command.attention(CPU)


# A machine with several


NVIDIA_SMI = """#!/bin/sh
case $1 in
topo)
    printf '\\t\\033[4mGPU0\\tGPU1\\033[0m\\nGPU0\\t X \\tNV18\\nGPU1\\tNV18\\t X \\n'
    printf '\\nLegend:\\n'
    ;;
*) printf 'driver_version\\n580.65\\n580.65\\n' ;;
esac
"""


def loss_of(step: int) -> float:
    return LOSSES.get(step, 7.0)


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Stand in for eight GPUs and for the commands that use them, which are returned."""
    typed: list[tuple[str, ...]] = []

    def run(line: tuple[str, ...], **_how: Any) -> subprocess.CompletedProcess[str]:
        if line[0] != sys.executable:
            return genuine(line, **_how)
        words = line[line.index("--quiet") + 1 :]
        typed.append(words)
        out = ""
        if "plan" in line:
            (n,) = re.findall(r"--processes=(\d+)", " ".join(line))
            speed = 100_000 * int(n)
            out = json.dumps({"tgt_tokens_per_second": speed, "update_flops": 1e13})
        if words[0] == "bench":
            way = Acceleration.choose(torch.device("cuda"), torch.bfloat16)
            found = "bfloat16" if "--device=cuda:5" in line else str(way)
            out = json.dumps([{"way": found, "peak_flops": 5e13}])
        if words[0] == "train":
            (folder,) = (each.removeprefix("--runs-dir=") for each in line if "runs-dir" in each)
            place = Path(folder, "train", "fingerprint")
            place.mkdir(parents=True)
            known = {"skipped": False, "src_tokens": 1, "tgt_tokens": 1, "seconds": 0.1}
            lines = [{"step": n, "loss": loss_of(n), **known} for n in range(1, 51)]
            write_metrics(place / "metrics.jsonl", lines)
        return subprocess.CompletedProcess(line, 0, out, "")

    def apart(_look: Any, device: torch.device, *, if_killed: str) -> Any:
        if device.index == 3:
            raise UserError(if_killed)
        return "fine", {}

    genuine = subprocess.run
    smi = tmp_path / "nvidia-smi"
    smi.write_text(NVIDIA_SMI, encoding="utf-8")
    smi.chmod(0o755)
    stand_ins: dict[str, Any] = {
        "subprocess.run": run,
        "torch.cuda.device_count": lambda: 8,
        "torch.cuda.nccl.version": lambda: (2, 27, 5),
        "nmtkit.config.settings.Settings.torch_dtype": lambda *_: torch.bfloat16,
        "nmtkit.cli.selftest.environment": lambda _: iter([Check("nmtkit", "held", "")]),
        "nmtkit.benchmark.selftest_gpu.call_apart": apart,
        "nmtkit.benchmark.selftest_gpu.map_chunks": lambda *_, workers: iter([1e11 / workers]),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(name, stand_in)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return typed


def test_eight_devices_are_checked_one_by_one_and_together(eight: list[tuple[str, ...]]) -> None:
    checks = list(command.gpu_checks(Settings(Path("runs")), Path("runs")))
    found = {check.what: check for check in checks}
    failed = {check.what for check in checks if check.state == "failed"}
    # On one device processes are killed, and another one does without its techniques.
    assert failed == {"cuda:3 products", "cuda:3 attention", "cuda:5 training"}
    whats = ("products", "attention", "training")
    assert {f"cuda:{n} {what}" for n in range(8) for what in whats} <= {*found}
    topology = "GPU0 GPU1; GPU0 X NV18; GPU1 NV18 X"
    assert found["connections"].seen.endswith(f"driver_version; 580.65; 580.65; {topology}")
    assert [what for what in found if what.startswith("sum")] == [
        "sum, 2 x cuda",
        "sum, 4 x cuda",
        "sum, 8 x cuda",
    ]
    for n in (1, 2, 4, 8):  # a token takes 1e13 / 25,000 FLOP
        check = found[f"wmt14-en-de-big, {n} x cuda"]
        assert check.figures == {"tgt_tokens_per_second": 1e5 * n, "mfu": pytest.approx(0.8)}
    trained = [line[-2:] for line in eight if line[0] == "train"]
    assert trained[0] == ("--device=cpu", "--processes=1")
    assert ("--accelerate=none", "--dtype=float32") in trained
    assert trained[-1] == ("--device=cuda", "--processes=8")


@pytest.mark.parametrize("wrong", [{1: 8.36}, {20: 7.1}])
def test_other_losses_than_elsewhere_fail(
    eight: list[tuple[str, ...]], wrong: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    del eight
    monkeypatch.setattr(f"{__name__}.loss_of", lambda step: wrong.get(step, 7.0))
    found = command.gpu_checks(Settings(Path("runs")), Path("runs"))
    checks = {check.what: check for check in found}
    assert checks["demo, 1 x cpu"].state == "failed"
    assert checks["wmt14-en-de-base, 8 x cuda"].state == "held"  # the next ones go on
