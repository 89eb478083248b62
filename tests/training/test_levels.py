"""All ways to compute an update agree: levels, numbers of processes, and any number of bins.

The processes run one after the other in this one, each with a trainer of its own. Each runs a step
twice: the first time, to collect the tensors that it sums with the others; then with the sums.
"""

import io
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
import torch._inductor.config
from graphs import record_graphs
from torch import Tensor
from trainers import CPU, V, config_of, corpus, model_of

from nmtkit.stages.training_setup import new_trainer, start_trainer
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.batches import Ints, Update
from nmtkit.training.distributed import Group
from nmtkit.training.step import PreparedUpdate, QueuedStep, Setup, Trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
N_PAIRS = 60
# Large, since Adam would turn the rounding of small gradients into steps.
CONFIG = config_of(adam_epsilon=1e-2, src_tokens_per_update=120, tgt_tokens_per_update=120)


# By rounding, relative: of the loss, of the whole gradient, and of all weights.
ERRORS = {torch.float32: (1e-5, 1e-4, 1e-5), torch.bfloat16: (1e-3, 0.03, 4e-3)}


class Collected(Exception):  # noqa: N818 - not an error
    """A process has computed everything that it sums."""


@dataclass
class Exchange:
    """The tensors that a process sums with the others in a step, in order."""

    is_collecting: bool = False
    tensors: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Simulated(Group):
    """One of several processes. In its trial, the others have the same values."""

    exchange: Exchange = field(default_factory=Exchange)
    n_sums: int = 2  # of a step: gradients, then losses and requests

    def sum_(self, values: Tensor) -> None:
        tensors = self.exchange.tensors
        if self.exchange.is_collecting:
            tensors.append(values.clone())
            if len(tensors) == self.n_sums:
                raise Collected
        elif tensors:
            values.copy_(tensors.pop(0))

    def gather(self, value: float) -> list[float]:
        return [value] * self.size


def start(acceleration: Acceleration, n_processes: int, max_tokens: int) -> list[Trainer]:
    """Start the processes, with the same weights."""
    trainers = []
    for rank in range(n_processes):
        setup = Setup(
            model=model_of().config,
            training=CONFIG,
            group=Simulated(rank, n_processes, CPU),
            acceleration=acceleration,
            max_tokens=max_tokens,
            multiple_of=n_processes,
            use_bins=True,
        )
        with redirect_stderr(io.StringIO()) as printed:
            trainers.append(start_trainer(setup, corpus(N_PAIRS), V))
        assert printed.getvalue() == ""
        assert trainers[-1].setup.acceleration == acceleration
    return trainers


def train_step(trainers: Sequence[Trainer], prepared: Sequence[PreparedUpdate]) -> list[QueuedStep]:
    """Run one step in all processes. The first one asks to save, and the last one to stop."""
    n_processes = len(trainers)

    def run(rank: int) -> QueuedStep:
        is_last = rank == n_processes - 1
        return trainers[rank].train_step(prepared[rank], save=rank == 0, stop=is_last)

    if n_processes == 1:
        return [run(0)]
    exchanges = []
    for rank, trainer in enumerate(trainers):
        assert isinstance(trainer.group, Simulated)
        exchange = trainer.group.exchange
        exchange.is_collecting = True
        with pytest.raises(Collected):
            run(rank)
        exchange.is_collecting = False
        exchanges.append(exchange)
    sums = [torch.stack(part).sum(0) for part in zip(*(e.tensors for e in exchanges), strict=True)]
    steps = []
    for rank, exchange in enumerate(exchanges):
        exchange.tensors[:] = sums
        steps.append(run(rank))
        assert exchange.tensors == []
    return steps


def reference_trainer(dtype: torch.dtype) -> Trainer:
    """Return an eager trainer in one process: of packed sequences in float32, of bins in 16 bits.

    The two differ by up to a tenth of the gradient, because they round in other places. Casts are
    compared in `test_weight_copies.py`.
    """
    if dtype != torch.float32:
        return start(Acceleration(dtype, Level.EAGER), 1, 10_000)[0]
    setup = Setup(
        model=model_of().config,
        training=CONFIG,
        group=Group(0, 1, CPU),
        acceleration=Acceleration(),
        max_tokens=10_000,
        multiple_of=1,
        use_bins=False,
    )
    return new_trainer(setup, corpus(N_PAIRS), V)


def updates_of(kind: str) -> list[Ints]:
    """Return the pairs of three updates, of which the second one is special."""
    epoch = np.arange(N_PAIRS)
    special = {
        "idle processes": epoch[40:43],
        "one bin": epoch[40:41],
        "several rounds": epoch[8:],
        "last of an epoch": epoch[-9:],
    }
    return [epoch[:30], special[kind], epoch[20:50]]


def assert_levels_are_equal(acceleration: Acceleration, n_processes: int, kind: str) -> None:
    """Compare three steps with those of the reference."""
    loss_error, gradient_error, weight_error = ERRORS[acceleration.dtype]
    # Memory for few bins, which have 16 tokens a side.
    max_tokens = 48 if kind == "several rounds" else 10_000
    trainers = start(acceleration, n_processes, max_tokens)
    reference = reference_trainer(acceleration.dtype)
    for step, pairs in enumerate(updates_of(kind), start=1):
        update = Update(0, step, pairs)
        (expected,) = train_step([reference], [reference.prepare(update, step)])
        prepared = [trainer.prepare(update, step) for trainer in trainers]
        shares = [len(share.micro_batches) for share in prepared]
        assert max(shares) - min(shares) <= 1
        assert min(shares) > 0 or max(shares) == 1  # no process is idle while another has two
        if step == 2:
            assert (max(shares) > 1) == (kind == "several rounds")
            assert kind != "one bin" or sum(shares) == 1
            assert kind != "idle processes" or 0 in shares or n_processes <= 2
        results = [queued.wait() for queued in train_step(trainers, prepared)]
        metrics = expected.wait().metrics
        for trainer, result in zip(trainers, results, strict=True):
            assert (result.save_requests, result.stop_requests) == (1, 1)
            assert result.metrics.loss == pytest.approx(metrics.loss, rel=loss_error)
            assert result.metrics.nll == pytest.approx(metrics.nll, rel=loss_error)
            assert result.metrics.gradient_norm == pytest.approx(
                metrics.gradient_norm, rel=gradient_error
            )
            assert replace(result.metrics, loss=0, nll=0, gradient_norm=0) == replace(
                metrics, loss=0, nll=0, gradient_norm=0
            )
            gradient, weights = flat_values(trainer)
            expected_gradient, expected_weights = flat_values(reference)
            error = (gradient - expected_gradient).norm() / expected_gradient.norm()
            assert error < gradient_error
            error = (weights - expected_weights).norm() / expected_weights.norm()
            assert error < weight_error
            # The processes stay the same.
            assert torch.equal(weights, flat_values(trainers[0])[1])


def flat_values(trainer: Trainer) -> tuple[Tensor, Tensor]:
    """Return the gradients and the weights of a model, each in one vector."""
    gradients = []
    weights = []
    for parameter in trainer.gradients.parameters:
        assert parameter.grad is not None
        gradients.append(parameter.grad.flatten())
        weights.append(parameter.detach().flatten())
    return torch.cat(gradients), torch.cat(weights)


COMBINATIONS = [
    (torch.float32, 1),
    (torch.float32, 2),
    (torch.float32, 4),
    (torch.float32, 8),
    (torch.bfloat16, 1),
    (torch.bfloat16, 4),
]
KINDS = ["idle processes", "one bin", "several rounds", "last of an epoch"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "n_processes"), COMBINATIONS)
@pytest.mark.parametrize("level", [Level.EAGER, Level.CAPTURED])
def test_levels_are_equal(
    dtype: torch.dtype, level: Level, n_processes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda *_, **_options: None)
    record_graphs(monkeypatch)
    assert_levels_are_equal(Acceleration(dtype, level), n_processes, kind)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "n_processes"), COMBINATIONS)
def test_compiled_levels_are_equal(
    dtype: torch.dtype, n_processes: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the code that inductor writes for this processor, the same in all processes.

    Here it rounds to 16 bits where eager code does. Otherwise, gradients differ by 3.4 %.
    """
    torch.compiler.reset()
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    with torch._inductor.config.patch(emulate_precision_casts=True):
        assert_levels_are_equal(Acceleration(dtype, Level.COMPILED), n_processes, kind)
    monkeypatch.undo()
    torch.compiler.reset()
