"""selftest --gpu on a CPU: comparisons, measurements, failures, kills and the time limit."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import record_graphs
from system.command import environment, start
from torch import Tensor

from nmtkit.benchmark import gpu_measurements, selftest_gpu
from nmtkit.benchmark.gpu_measurements import compare_gradients, measure_training
from nmtkit.benchmark.selftest import Check
from nmtkit.benchmark.selftest_gpu import Measurement
from nmtkit.config.loading import recipe_path
from nmtkit.config.settings import Settings
from nmtkit.fast import accelerate
from nmtkit.fast.bins import bin_attention
from nmtkit.stages.training_setup import new_trainer
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.step import Setup
from nmtkit.utils.errors import RestartNeeded

CHANGES = {
    "n_layers = 2": "n_layers = 1",
    "d_model = 128": "d_model = 16",
    "d_ff = 256": "d_ff = 16",
    "d_k = 32": "d_k = 4",
    "d_v = 32": "d_v = 4",
    "n_merges = 2_500": "n_merges = 64",
    "max_positions = 256": "max_positions = 64",
    "= 1_024": "= 512",
}


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """The path of a recipe with a small model."""
    text = recipe_path("demo").read_text(encoding="utf-8")
    for old, new in CHANGES.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8", newline="\n")
    return str(path)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "runs", device="cpu", dtype="float32")


# Loss and gradient


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_compiled_gradient_agrees(
    recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compiler traces and differentiates, but generates no code, because that is slow.
    genuine: Callable[..., Any] = torch.compile
    monkeypatch.setattr(torch, "compile", partial(genuine, backend="aot_eager"))

    def compile_module(module: Any, **options: Any) -> None:
        compiled = genuine(module._call_impl, backend="aot_eager", **options)
        module._compiled_call_impl = compiled

    monkeypatch.setattr(torch.nn.Module, "compile", compile_module)
    check_levels(recipe, settings, [Level.EAGER, Level.COMPILED])
    torch.compiler.reset()


def test_captured_gradient_agrees(
    recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **_options: None)
    graphs = record_graphs(monkeypatch)
    check_levels(recipe, settings, [Level.EAGER, Level.CAPTURED])
    assert graphs[0].n_replays == 2  # in the comparison of the capture itself, and here


def check_levels(recipe: str, settings: Settings, levels: list[Level]) -> None:
    checks = list(compare_gradients(recipe, settings, levels))
    for check, level in zip(checks, levels, strict=True):
        assert check.state == "passed", check
        assert level.name.lower() in check.what
        assert 0 < check.figures["gradient_error"] < 1e-4
        assert check.figures["loss_error"] < 1e-6


def test_bfloat16_is_compared_after_float32(
    recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "torch_dtype", lambda *_: torch.bfloat16)
    first, second = compare_gradients(recipe, settings, [Level.EAGER])
    assert ("float32" in first.what, "bfloat16" in second.what) == (True, True)
    assert first.state == second.state == "passed"
    assert first.figures["gradient_error"] < 1e-4 < second.figures["gradient_error"]


def wrong_gradient(q: Tensor, *others: Any) -> Tensor:
    """Attention with twice the gradient of its queries."""
    return bin_attention(2 * q - q.detach(), *others)


def without_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float) -> Tensor:
    return bin_attention(q, k, v, torch.ones_like(mask), dropout)


def not_a_number(*inputs: Any) -> Tensor:
    return bin_attention(*inputs) * torch.nan


@pytest.mark.parametrize("attention", [wrong_gradient, without_mask, not_a_number])
def test_wrong_gradient_fails(
    attention: Callable[..., Tensor],
    recipe: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accelerate, "bin_attention", attention)
    (check,) = compare_gradients(recipe, settings, [Level.EAGER])
    assert check.state == "failed"
    assert "relative errors" in check.seen


def test_failing_level_leaves_next(
    recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(setup: Setup, *arguments: Any) -> Any:
        if setup.acceleration.level == Level.COMPILED:
            raise ValueError("wrapped") from OSError("no compiler")
        return new_trainer(setup, *arguments)

    monkeypatch.setattr(gpu_measurements, "new_trainer", build)
    levels = [Level.COMPILED, Level.EAGER]
    checks = list(compare_gradients(recipe, settings, levels))
    assert [check.state for check in checks] == ["failed", "passed"]
    assert "OSError: no compiler" in checks[0].seen


def test_compared_pairs_are_spread(recipe: str, settings: Settings) -> None:
    setup, text = gpu_measurements._open(recipe, settings)
    bins_setup = setup.__class__(**{**vars(setup), "max_tokens": 10_000, "use_bins": True})
    trainer = new_trainer(bins_setup, text.pairs, setup.model.embedding_rows(text.n_tokens))
    bins = gpu_measurements._sparse_bins(trainer)
    assert len(bins) == trainer.bin_shapes[0].n_bins
    pairs = [pair for indices in bins for pair in indices]
    assert len(pairs) == len(set(pairs)) > 5


# Speed


def test_training_is_measured(
    recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu_measurements.SPEED_SECONDS, "cpu", 0.1)
    monkeypatch.setattr(gpu_measurements, "PEAK_SECONDS", 0.1)
    checks = list(measure_training(recipe, settings, Level.EAGER, with_kernels=True))
    start, speed, operators = checks
    assert {check.state for check in checks} == {"passed"}
    assert start.figures["start_seconds"] > 0
    figures = speed.figures
    assert 0 < figures["mfu"] < 1
    tgt_tokens = figures["tgt_tokens_per_second"] * figures["ms_per_step"] / 1e3
    assert 400 < tgt_tokens <= 512  # per update
    assert len(operators.figures) == 10
    assert list(operators.figures.values()) == sorted(operators.figures.values(), reverse=True)
    assert any("mm" in name for name in operators.figures)
    assert not settings.runs_dir.exists()


def no_graph(_setup: Setup, _pairs: Any, _n_rows: int) -> Any:
    raise RestartNeeded("no CUDA graph could be captured (a reason)")


def lower_level(setup: Setup, pairs: Any, n_rows: int) -> Any:
    return new_trainer(replace(setup, acceleration=Acceleration()), pairs, n_rows)


@pytest.mark.parametrize(
    ("start_trainer", "seen"), [(no_graph, "a reason"), (lower_level, "float32, eager")]
)
def test_fallback_is_a_failure(
    start_trainer: Any, seen: str, recipe: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_measurements, "PEAK_SECONDS", 0.1)
    monkeypatch.setattr(gpu_measurements, "start_trainer", start_trainer)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **_options: None)
    (check,) = measure_training(recipe, settings, Level.COMPILED, with_kernels=False)
    assert check.state == "failed"
    assert seen in check.seen


def test_measurements_by_importance(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(Settings, "torch_dtype", lambda *_: torch.bfloat16)
    monkeypatch.setattr(Acceleration, "choose", lambda *_: Acceleration(level=Level.CAPTURED))
    names = [
        measurement.what
        for measurement in selftest_gpu.measurements(settings, torch.device("cuda"))
    ]
    levels = ["captured", "compiled", "eager"]
    assert names == [
        "wmt14-en-de-base: loss and gradient",
        *(f"wmt14-en-de-base, {level}" for level in levels),
        *(f"wmt14-en-de-big, {level}" for level in levels),
        "wmt14-en-de-base, kernels of attention",
        "wmt14-en-de-base, two processes",
    ]
    on_cpu = list(selftest_gpu.measurements(settings, torch.device("cpu")))
    assert [measurement.what for measurement in on_cpu][1:] == [
        *(f"demo, {level}" for level in levels),
        "demo, kernels of attention",
    ]


def test_kernels_of_attention_are_timed(settings: Settings) -> None:
    """A CPU has two of the four."""
    checks = {check.what: check for check in gpu_measurements.compare_attention("demo", settings)}
    states = {what.split(" by ")[1]: check.state for what, check in checks.items()}
    assert states == {
        "efficient_attention": "skipped",
        "math": "passed",
        "cudnn_attention": "skipped",
        "flash_attention": "passed",
    }


@pytest.mark.slow
def test_two_processes_are_measured(settings: Settings) -> None:
    (check,) = gpu_measurements.measure_two_processes("demo", settings)
    assert check.figures["tgt_tokens_per_second"] > 1


# The environment of a GPU


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("printf 'driver_version\\n580.65\\n'", "passed", "driver_version; 580.65"),
        ("echo broken >&2; exit 9", "noted", "CalledProcessError"),
        (None, "noted", "FileNotFoundError"),
    ],
)
def test_driver_may_be_broken(
    script: str | None, state: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
    check = selftest_gpu._driver()
    assert (check.what, check.state) == ("driver", state)
    assert "NCCL 2.27.5" in check.seen
    assert words in check.seen


# Processes


def fail() -> Iterator[Check]:
    yield Check("before", "passed", "")
    raise ValueError("outer") from OSError("inner")


def kill_itself() -> Iterator[Check]:
    yield Check("alive", "passed", "")
    os.kill(os.getpid(), signal.SIGKILL)


def write_pid_and_hang(path: Path) -> Iterator[Check]:
    path.write_text(str(os.getpid()), encoding="utf-8")
    yield Check("hangs", "passed", "")
    time.sleep(600)


@pytest.mark.slow
def test_failures_do_not_end_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    hang = partial(write_pid_and_hang, pid_file)
    runs: dict[str, Callable[[], Iterator[Check]]] = {
        "a": fail,
        "b": kill_itself,
        "c": hang,
        "d": fail,
    }
    found = [Measurement(name, run, "cache") for name, run in runs.items()]
    monkeypatch.setattr(selftest_gpu, "measurements", lambda *_: iter(found))
    monkeypatch.setattr("nmtkit.benchmark.selftest.environment", lambda _: iter([]))
    genuine = time.monotonic
    begin = genuine()
    checks = []
    deadline = 60.0
    for check in selftest_gpu.gpu_checks(settings, deadline, tmp_path):
        checks.append((check.what, check.state))
        if check.what == "hangs":  # the time is over soon
            monkeypatch.setattr(time, "monotonic", lambda: genuine() + deadline)
    monkeypatch.undo()
    assert checks == [
        ("before", "passed"),
        ("a", "failed"),
        ("alive", "passed"),
        ("b", "failed"),
        ("hangs", "passed"),
        ("c", "skipped"),
        ("time", "skipped"),
    ]
    assert time.monotonic() - begin < deadline
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text(encoding="utf-8")), 0)


def processes_of(parent: int) -> list[int]:
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return [int(word) for word in found.stdout.split()]


def results(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    assert lines[-1] == ""  # no line is cut off
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.slow
def test_demo_within_a_minute_on_a_cpu(tmp_path: Path) -> None:
    with start(tmp_path, "selftest", "--gpu", "--seconds=60", env=environment()) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, out + err
    found = results(tmp_path / "runs" / "selftest.jsonl")
    names = [record["what"] for record in found]
    assert names[0] == "nmtkit"
    assert [name for name in names if "eager" in name] == [
        "demo, float32, eager: loss and gradient",
        "demo, float32, eager: start",
        "demo, float32, eager: speed",
        "demo, float32, eager: operators",
    ]
    for name in names:
        assert f": {name}: ".encode() in out
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.slow
def test_kill_keeps_results(tmp_path: Path) -> None:
    """All results are on disk, and the measuring process exits too."""
    path = tmp_path / "runs" / "selftest.jsonl"
    process = start(tmp_path, "selftest", "--gpu", "--seconds=60", env=environment())
    deadline = time.monotonic() + 120
    while not any("loss" in record["what"] for record in results(path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children: list[int] = []
    while not children:
        children = processes_of(process.pid)
    process.kill()
    process.communicate()
    assert any(
        record["what"] == "demo, float32, eager: loss and gradient" for record in results(path)
    )
    for child in children:
        while Path(f"/proc/{child}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
