"""The start of training: the trial step, the fallbacks, and the summary."""

import io
import os
import subprocess
import weakref
from contextlib import redirect_stderr
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from graphs import record_graphs
from torch import Tensor
from trainers import CPU, ONE_PROCESS, config_of, corpus, model_of

from nmtkit.cli import app as cli
from nmtkit.model.transformer import Transformer
from nmtkit.stages import training_setup
from nmtkit.stages.training_setup import (
    common_acceleration,
    is_short_of_memory,
    new_trainer,
    root_cause,
    start_trainer,
)
from nmtkit.training import acceleration, gradients
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.distributed import Group
from nmtkit.training.step import Setup, Trainer
from nmtkit.utils.errors import AlreadyReported, RestartNeeded, UserError

HALF = torch.bfloat16
CUDA = torch.device("cuda")
N_ROWS = 23


def setup_of(level: Level, group: Group = ONE_PROCESS, max_tokens: int = 120) -> Setup:
    return Setup(
        model=model_of().config,
        training=config_of(),
        group=group,
        acceleration=Acceleration(level=level),
        max_tokens=max_tokens,
        multiple_of=1,
        use_bins=True,
    )


def start(setup: Setup) -> tuple[Trainer, list[str]]:
    with redirect_stderr(io.StringIO()) as printed:
        trainer = start_trainer(setup, corpus(), N_ROWS, corpus(20, seed=2))
    return trainer, printed.getvalue().split("\n")[:-1]


@pytest.fixture
def graphs_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    record_graphs(monkeypatch)


@pytest.fixture
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace torch.compile by a function that compiles nothing."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **__: None)


@pytest.mark.usefixtures("graphs_on_cpu", "no_code")
@pytest.mark.parametrize("level", Level)
def test_trial_changes_nothing(level: Level) -> None:
    """Training starts from the same weights, with the moments of Adam at zero."""
    trainer, messages = start(setup_of(level))
    assert messages == []
    assert trainer.setup.acceleration.level == level
    fresh = new_trainer(setup_of(Level.EAGER), corpus(), N_ROWS)
    for tried, new in zip(trainer.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(tried, new)
        for moment in ("exp_avg", "exp_avg_sq", "step"):
            assert not trainer.optimizer.state[tried][moment].any()
    for one, other in zip(trainer.prepared_updates(3), fresh.prepared_updates(3), strict=True):
        result = trainer.train_step(one).wait()
        expected = fresh.train_step(other).wait()
        assert result.metrics.loss == pytest.approx(expected.metrics.loss, rel=1e-6)
        assert result.metrics.gradient_norm == pytest.approx(
            expected.metrics.gradient_norm, rel=1e-5
        )


ERRORS = [
    AssertionError("Triton failed"),
    RuntimeError("no kernel image"),
    subprocess.CalledProcessError(1, "gcc"),
    ValueError("shape"),
    ImportError("no libcuda"),
    OSError("no space left for compiled code"),
]


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_failed_compilation_falls_back(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    genuine = gradients.batch_losses

    def compute(model: Any, batch: Any, smoothing: float, softmax: Any, *_copies: Any) -> Any:
        if softmax is not None:
            raise RuntimeError("the backend failed") from error
        return genuine(model, batch, smoothing)

    monkeypatch.setattr(gradients, "batch_losses", compute)
    trainer, messages = start(setup_of(Level.COMPILED))
    assert trainer.setup.acceleration.level == Level.EAGER
    assert str(error) in messages[0]
    assert all("\n" not in message for message in messages)


@pytest.mark.usefixtures("no_code")
def test_failed_capture_needs_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("operation not permitted")

    monkeypatch.setattr("nmtkit.training.gradients.warm_up", fail)
    with pytest.raises(RestartNeeded):
        start(setup_of(Level.CAPTURED))


def test_restart_disables_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[Any] = []

    class Executed(BaseException):
        pass

    def execv(program: str, arguments: list[str]) -> None:
        executed.append((program, arguments, dict(os.environ)))
        raise Executed

    def app() -> None:
        raise RestartNeeded

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr("sys.orig_argv", ["python", "-m", "nmtkit", "train", "demo"])
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setenv("NMTKIT_NO_CUDA_GRAPHS", "")  # so that it is restored afterwards
    with pytest.raises(Executed):
        cli.main()
    ((_, arguments, environment),) = executed
    assert arguments == ["python", "-m", "nmtkit", "train", "demo"]
    assert environment["NMTKIT_NO_CUDA_GRAPHS"] == "1"
    monkeypatch.setattr(acceleration, "has_compiler", lambda: True)
    assert Acceleration.choose(CUDA, HALF).level == Level.COMPILED


def narrow_memory(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Raise OutOfMemoryError in a pass over more than `limit` positions."""
    genuine = gradients.batch_losses

    def compute(model: Any, batch: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(batch, Tensor) and batch[0].numel() > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return genuine(model, batch, *arguments, **options)

    monkeypatch.setattr(gradients, "batch_losses", compute)


@pytest.mark.parametrize(("limit", "max_tokens"), [(999, 120), (64, 60), (31, 30), (16, 30)])
def test_short_memory_halves_batches(
    monkeypatch: pytest.MonkeyPatch, limit: int, max_tokens: int
) -> None:
    narrow_memory(monkeypatch, limit)
    trainer, _ = start(setup_of(Level.EAGER))
    assert trainer.setup.max_tokens == max_tokens
    for prepared in trainer.prepared_updates(3):
        assert not trainer.train_step(prepared).wait().metrics.skipped


def test_failed_model_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory must be free before the next one is built."""
    narrow_memory(monkeypatch, 31)
    built: list[weakref.ref[Transformer]] = []

    def build(setup: Setup, *arguments: Any) -> Trainer:
        assert all(model() is None for model in built)
        trainer = new_trainer(setup, *arguments)
        built.append(weakref.ref(trainer.model))
        return trainer

    monkeypatch.setattr(training_setup, "new_trainer", build)
    start(setup_of(Level.EAGER))
    assert len(built) > 1


@pytest.mark.usefixtures("graphs_on_cpu", "no_code")
@pytest.mark.parametrize("level", Level)
def test_all_shapes_are_tried(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    """Also by a process that has no micro-batch in the first update."""
    monkeypatch.setattr(Group, "gather", lambda group, value: [value] * group.size)
    summed: list[int] = []
    monkeypatch.setattr("torch.distributed.all_reduce", lambda x: summed.append(x.numel()))
    tried: set[tuple[int, ...]] = set()
    genuine = gradients.batch_losses

    def compute(model: Any, batch: Any, *arguments: Any) -> Any:
        # A capture, which comes later, could not read values.
        if isinstance(batch, Tensor) and tuple(batch.shape[1:]) not in tried:
            assert bool((batch[1, :, 0] != 0).all())  # sentences in all bins
            tried.add(tuple(batch.shape[1:]))
        return genuine(model, batch, *arguments)

    monkeypatch.setattr(gradients, "batch_losses", compute)
    trainer, _ = start(replace(setup_of(level, Group(7, 8, CPU)), multiple_of=8))
    assert tried == {(shape.n_bins, shape.length) for shape in trainer.bin_shapes}
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    assert summed == [n_parameters]  # NCCL allocates its buffers too


def test_short_memory_of_one_bin_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow_memory(monkeypatch, 8)
    with pytest.raises(UserError, match="smaller max_positions"):
        start(setup_of(Level.EAGER))


class Scripted(Group):
    """A group in which another process answers `any` according to a script."""

    script: ClassVar[list[bool]] = []

    def any(self, flag: bool) -> bool:
        return self.script.pop(0) or flag


@pytest.mark.usefixtures("no_code")
def test_failure_elsewhere_falls_back() -> None:
    """First it runs out of memory, then its compiler fails; both take three answers."""
    Scripted.script = [False, True, True, False, True, False, False, False]
    trainer, messages = start(setup_of(Level.COMPILED, Scripted(0, 1, CPU)))
    assert (trainer.setup.acceleration.level, trainer.setup.max_tokens) == (Level.EAGER, 60)
    assert messages == []
    assert Scripted.script == []


def test_failure_elsewhere_stops_this() -> None:
    Scripted.script = [True, False]
    with pytest.raises(AlreadyReported):
        start(setup_of(Level.EAGER, Scripted(0, 1, CPU)))


def test_common_acceleration_is_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Acceleration(HALF, Level.CAPTURED)
    assert common_acceleration(ours, ONE_PROCESS) == ours
    theirs = [0.0, float(Level.COMPILED)]  # float32, compiled

    def all_reduce(values: Tensor) -> None:
        values[1] = theirs.pop(0)

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    found = common_acceleration(ours, Group(0, 2, CPU))
    assert found == Acceleration(torch.float32, Level.COMPILED)


def test_level_by_device_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "has_compiler", lambda: True)
    assert Acceleration.choose(CUDA, HALF) == Acceleration(HALF, Level.CAPTURED)
    assert Acceleration.choose(CUDA, torch.float32).level == Level.CAPTURED
    assert Acceleration.choose(CUDA, HALF, Level.COMPILED).level == Level.COMPILED
    assert Acceleration.choose(CPU, HALF) == Acceleration(HALF, Level.EAGER)
    monkeypatch.setattr(acceleration, "has_compiler", lambda: False)
    assert Acceleration.choose(CUDA, HALF).level == Level.EAGER


def compile_and_fail() -> None:
    try:
        raise AssertionError("Triton failed\nat line 3")
    except AssertionError as inner:
        raise RuntimeError("backend='inductor' raised") from inner


def capture_and_fail() -> None:
    try:
        raise torch.OutOfMemoryError("CUDA out of memory.")
    finally:
        raise RuntimeError("capture_end failed")


def test_root_cause_is_innermost() -> None:
    with pytest.raises(RuntimeError) as failed:
        compile_and_fail()
    assert root_cause(failed.value) == "AssertionError: Triton failed"
    assert not is_short_of_memory(failed.value)
    with pytest.raises(RuntimeError) as failed:
        capture_and_fail()
    assert root_cause(failed.value).startswith("OutOfMemoryError")
    assert is_short_of_memory(failed.value)
