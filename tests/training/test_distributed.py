"""Training on several processes of torchrun, compared with training on one process."""

import io
import itertools
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import test_loop
import torch
from safetensors.torch import load_file
from system.command import environment
from test_loop import losses
from trainers import CPU, ONE_PROCESS, config_of, corpus, model_of, trainer_of

from nmtkit.cli import app as cli
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Precision, Settings
from nmtkit.model.transformer import Transformer
from nmtkit.stages import training_setup
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import choose_setup, enough_memory
from nmtkit.store.code_version import code_identity
from nmtkit.training import gradients, loop
from nmtkit.training import step as step_module
from nmtkit.training.batches import Ints, Pairs, Update, updates
from nmtkit.training.checkpoint import checkpoints
from nmtkit.training.distributed import Group, join
from nmtkit.training.launch import MAX_RESTARTS, launch
from nmtkit.training.loss import Losses
from nmtkit.training.metrics import METRICS, read_metrics
from nmtkit.training.micro_batches import Batch, micro_batches, pack
from nmtkit.training.step import PreparedUpdate, Setup, Trainer
from nmtkit.utils.errors import AlreadyReported, UserError

SLOW = pytest.mark.slow
PATIENCE_S = 300.0  # timeout; the processes take seconds on idle cores and time out much later
N_UPDATES = 100
# A learning rate as in the paper: with a higher one, rounding differences grow.
CONFIG = config_of(max_steps=N_UPDATES, warmup_steps=200, checkpoint_every_steps=20)
# Maximum number of tokens of a micro-batch, for about five micro-batches per update and for one.
FIVE_PER_STEP = 35
ONE_PER_STEP = 120


# The code of the processes, which run this file


@dataclass(frozen=True)
class Part:
    """A run of the loop, in one process or several.

    Attributes:
        directory: Directory of the checkpoints and of other files of the processes.
        max_tokens: Maximum number of tokens per side of a micro-batch.
        dropout: Dropout rate.
        stop_after: Step in which the last process is stopped.
        fault: Key in FAULTS of an error of the second process.
        lost: If not "", the second process is killed once; if "stopped", the first one hangs then.
        save_every_s: Seconds between checkpoints.
        max_queued: Number of steps that may be queued.
        limits: `max_tokens` of every process, if they differ.
        are_options: If `limits` are options of the users, not limits of the devices' memory.
        dtypes: Precision that every process would choose.
    """

    directory: str
    max_tokens: int = FIVE_PER_STEP
    dropout: float = 0.0
    stop_after: float = math.inf
    fault: str = ""
    lost: str = ""
    save_every_s: float = loop.SAVE_EVERY_S
    max_queued: int = 0
    limits: Sequence[int] = ()
    are_options: bool = False
    dtypes: Sequence[Precision] = ()

    def setup(self, group: Group) -> Setup:
        """The setup that the stage computes from a recipe, with the limits of this process."""
        with pytest.MonkeyPatch.context() as patch:
            limit = self.limits[group.rank] if self.limits else self.max_tokens
            option = limit if self.are_options else None
            patch.setattr(training_setup, "max_fitting_tokens", lambda *_: limit)
            dtype = self.dtypes[group.rank] if self.dtypes else "float32"
            settings = Settings(Path(self.directory), device="cpu", max_tokens=option, dtype=dtype)
            pipeline = Pipeline(load_recipe("demo", []), settings, "demo")
            return choose_setup(pipeline, group)

    def run(self, group: Group) -> None:
        """Train as one process of `group`."""
        # The weights of the first process must be sent to the others.
        model = model_of(dropout=self.dropout, seed=1 + group.rank)
        if self.fault and (group.rank == 1 or self.fault == "all processes"):
            FAULTS[self.fault](model)
        if self.lost and group.rank == 1:
            self.kill_once()
        # A stop of one process must stop all of them.
        is_stopped = group.rank == group.size - 1
        setup = self.setup(group)
        model.src_embedding.dtype = model.tgt_embedding.dtype = setup.acceleration.dtype
        with enough_memory(CPU, setup.max_tokens, setup.model.max_positions):
            test_loop.run(
                Path(self.directory),
                model,
                CONFIG,
                max_tokens=setup.max_tokens,
                stop_after=self.stop_after if is_stopped else math.inf,
                group=group,
                save_every_s=self.save_every_s,
                max_queued=self.max_queued,
                acceleration=setup.acceleration,
            )

    def kill_once(self) -> None:
        """Kill this process after the checkpoint of step 20, unless one was killed before."""
        folder = Path(self.directory)
        if (folder / "killed").exists():
            return

        def kill() -> None:
            (folder / "killed").touch()
            if self.lost == "stopped":  # like a process that hangs, it does not notice the loss
                os.kill(int((folder / "pid-0").read_text(encoding="utf-8")), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGKILL)

        after_passes(60, kill)


def after_passes(n_passes: int, action: Callable[[], None]) -> None:
    """Call `action` before the forward pass number `n_passes`, counted from 0."""
    passes = itertools.count()
    genuine = gradients.batch_losses

    def count(*arguments: Any) -> Losses:
        if next(passes) == n_passes:
            action()
        return genuine(*arguments)

    pytest.MonkeyPatch().setattr(gradients, "batch_losses", count)


def raise_after(n_passes: int, error: Exception) -> None:
    def fail() -> None:
        raise error

    after_passes(n_passes, fail)


def raise_in_collectives(error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    torch.distributed.all_reduce = torch.distributed.broadcast = fail


DUPLICATE_GPU = """NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, \
invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.29.7
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000
Exception raised from create at /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94 (most recent \
call first):
frame #0: c10::Error::Error"""
ILLEGAL_ACCESS = """CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call."""

FAULTS: dict[str, Callable[[Transformer], None]] = {
    "memory": lambda _: raise_after(20, torch.OutOfMemoryError("CUDA out of memory.")),
    "disk": lambda _: raise_after(20, OSError(28, "No space left on device", "somewhere")),
    "nan": lambda model: test_loop.poison_gradients(model, range(10, 10_000), math.nan),
    "all processes": lambda _: raise_in_collectives(
        torch.distributed.DistBackendError(DUPLICATE_GPU)
    ),
    "kernel": lambda _: raise_after(3, RuntimeError(ILLEGAL_ACCESS)),
    "late kernel": lambda _: raise_after(20, RuntimeError(ILLEGAL_ACCESS)),
    "bus": lambda _: after_passes(0, lambda: os.kill(os.getpid(), signal.SIGBUS)),
    "bug": lambda _: raise_after(3, AssertionError("a bug")),
}


def work() -> None:
    """Run the part in the command line as the process that torchrun's variables describe."""
    part = Part(**json.loads(sys.argv[1]))
    with join(CPU) as group:
        record_order(Path(part.directory) / f"order-{group.size}-{group.rank}.jsonl")
        pid = Path(part.directory) / f"pid-{group.rank}"
        pid.write_text(str(os.getpid()), encoding="utf-8")
        part.run(group)


def record_order(path: Path) -> None:
    """Log the pair numbers of every micro-batch that is packed for training."""

    def recording(pairs: Pairs, chosen: Ints, device: torch.device = CPU) -> Batch:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(chosen.tolist()) + "\n")
        return pack(pairs, chosen, device)

    def prepare(trainer: Trainer, update: Update, step: int) -> PreparedUpdate:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_module, "pack", recording)
            return genuine(trainer, update, step)

    genuine = Trainer.prepare
    path.touch()  # a process may have nothing to pack
    Trainer.prepare = prepare  # type: ignore[assignment, method-assign]


# Starting the processes, and their results


def start(part: Part, n_processes: int, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start the processes with torchrun."""
    Path(part.directory).mkdir(exist_ok=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={n_processes}"]
    return subprocess.Popen(
        [*torchrun, *(options or ("--standalone",)), __file__, json.dumps(asdict(part))],
        env=environment(PYTHONPATH=os.pathsep.join(sys.path), **variables),
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the processes; return their exit code and standard error."""
    with process:
        _, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, err.decode("utf-8")


def run_together(part: Part, n_processes: int) -> Path:
    """Train to the end on several processes."""
    code, err = ended(start(part, n_processes))
    assert code == 0, err
    return Path(part.directory)


def run_in_process(part: Part) -> Path:
    """Train to the end, or to a stop, in this process."""
    part.run(ONE_PROCESS)
    return Path(part.directory)


def curve(directory: Path, key: str = "loss") -> list[float]:
    """The loss of every step."""
    return [line[key] for line in losses(directory)]


def assert_same_training(ours: Path, theirs: Path) -> None:
    """Assert that the losses of all updates and the last weights agree up to rounding."""
    assert [line["step"] for line in losses(ours)] == list(range(1, N_UPDATES + 1))
    for key in ("loss", "nll"):
        assert curve(ours, key) == pytest.approx(curve(theirs, key), abs=1e-5)
    assert max(curve(theirs)) - min(curve(theirs)) > 0.1  # something was learned
    our_weights = load_file(checkpoints(ours)[-1] / "model.safetensors")
    their_weights = load_file(checkpoints(theirs)[-1] / "model.safetensors")
    for name, weight in our_weights.items():
        torch.testing.assert_close(weight, their_weights[name], atol=1e-3, rtol=0)


def expected_order(part: Part, rank: int, size: int) -> list[list[int]]:
    """The pair numbers of the micro-batches that a process must train on."""
    source = updates(corpus(), seed=3, max_length=9, src_tokens=120, tgt_tokens=120)
    order = []
    for update in itertools.islice(source, N_UPDATES):
        groups = micro_batches(corpus(), update.pairs, part.max_tokens)
        order += [group.tolist() for group in groups[rank::size]]
    return order


def assert_expected_order(part: Part, size: int) -> None:
    """Assert that every process packed its share of the micro-batches, in order."""
    for rank in range(size):
        text = (Path(part.directory) / f"order-{size}-{rank}.jsonl").read_text(encoding="utf-8")
        packed = [json.loads(line) for line in text.split("\n") if line]
        assert packed == expected_order(part, rank, size)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training of one process, with one micro-batch per update."""
    return run_in_process(Part(str(tmp_path_factory.mktemp("single")), max_tokens=ONE_PER_STEP))


@pytest.mark.parametrize(
    ("size", "max_tokens"),
    [
        (2, FIVE_PER_STEP),
        pytest.param(3, FIVE_PER_STEP, marks=SLOW),
        pytest.param(4, FIVE_PER_STEP, marks=SLOW),
        pytest.param(2, ONE_PER_STEP, marks=SLOW, id="the second has no micro-batch"),
    ],
)
def test_processes_equal_one(tmp_path: Path, single: Path, size: int, max_tokens: int) -> None:
    part = Part(str(tmp_path / "together"), max_tokens)
    assert_same_training(run_together(part, size), single)
    assert_expected_order(part, size)
    assert read_metrics(tmp_path / "together" / METRICS)[-1]["dev_sacrebleu"] == 12.5


@pytest.mark.parametrize(
    ("limits", "are_options"),
    [([60, FIVE_PER_STEP], False), pytest.param([90, FIVE_PER_STEP, 50], True, marks=SLOW)],
)
def test_unequal_processes_equal_one(
    tmp_path: Path, single: Path, limits: list[int], are_options: bool
) -> None:
    """They split updates by the smallest limit, and use the precision that all support."""
    dtypes: list[Precision] = ["auto" if limit == limits[-1] else "bfloat16" for limit in limits]
    part = Part(str(tmp_path / "unequal"), limits=limits, are_options=are_options, dtypes=dtypes)
    assert_same_training(run_together(part, len(limits)), single)
    assert_expected_order(part, len(limits))


@SLOW
def test_resume_with_other_processes(tmp_path: Path, single: Path) -> None:
    """Two processes are stopped, then one is stopped, then two train to the end."""
    directory = str(tmp_path / "changing")
    run_together(Part(directory, stop_after=17), 2)
    assert len(losses(tmp_path / "changing")) == 17
    run_in_process(Part(directory, stop_after=14))
    assert len(losses(tmp_path / "changing")) == 31
    assert_same_training(run_together(Part(directory), 2), single)


@SLOW
def test_queued_steps_stop_together(tmp_path: Path, single: Path) -> None:
    """Rank 0 requests a checkpoint after every step, and rank 1 requests the stop."""
    for save_every_s in (0.0, math.inf):
        part = Part(str(tmp_path / str(save_every_s)), max_queued=1, save_every_s=save_every_s)
        stopped = run_together(replace(part, stop_after=17), 2)
        assert len(losses(stopped)) in (17, 18)
        assert_same_training(run_together(part, 2), single)
        assert test_loop.steps_in(stopped) == test_loop.steps_in(single)


@SLOW
@pytest.mark.parametrize("max_restarts", [0, 2])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("memory", "nmtkit: cpu has too little memory for this model and micro-batches of 35 "),
        ("disk", "nmtkit: the disk is full (somewhere); "),
        ("nan", "not finite; no checkpoint was saved before; "),
    ],
)
def test_error_of_one_process_stops_all(
    tmp_path: Path, fault: str, message: str, max_restarts: int
) -> None:
    part = Part(str(tmp_path / "faulty"), fault=fault)
    code, err = ended(start(part, 2, "--standalone", f"--max-restarts={max_restarts}"))
    assert code != 0
    assert err.count(message) == 1
    assert "test_distributed.py" not in err.split("torch.distributed.elastic")[0]  # no traceback


@SLOW
@pytest.mark.parametrize("lost", ["killed", "stopped"])
def test_two_agents_resume_after_a_loss(tmp_path: Path, single: Path, lost: str) -> None:
    """As on two machines, an agent counts its own restarts and stops its own processes."""
    part = Part(str(tmp_path / "two"), lost=lost)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    there = [
        "--max-restarts=3",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=loss",
    ]
    variables = {
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "3",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    agents = [
        start(part, 1, "--nnodes=2", *there, "--local-addr=127.0.0.1", **variables)
        for _ in range(2)
    ]
    for code, err in map(ended, agents):
        assert code == 0, err
    assert (tmp_path / "two" / "killed").exists()
    assert_same_training(tmp_path / "two", single)


@SLOW
def test_two_machines_without_restarts(tmp_path: Path, single: Path) -> None:
    """Two static agents share one store, which is fine as long as nothing restarts."""
    part = Part(str(tmp_path / "two"))
    agents = [start_machine(part, machine, "--max-restarts=0") for machine in range(2)]
    for code, err in map(ended, agents):
        assert code == 0, err
    assert_same_training(tmp_path / "two", single)


@SLOW
@pytest.mark.parametrize(
    ("fault", "max_restarts", "message"),
    [
        ("", 3, "torchrun shares one store between restarts"),
        ("disk", 0, "somewhere"),
    ],
)
def test_error_is_printed_on_each_machine(
    tmp_path: Path, fault: str, max_restarts: int, message: str
) -> None:
    part = Part(str(tmp_path / "faulty"), fault=fault)
    options = f"--max-restarts={max_restarts}"
    agents = [start_machine(part, machine, options) for machine in range(2)]
    for code, err in map(ended, agents):
        assert code != 0
        printed = [line for line in err.split("\n") if line.startswith("nmtkit:")]
        assert len(printed) == 1
        assert message in printed[0]


def start_machine(part: Part, machine: int, *options: str) -> subprocess.Popen[bytes]:
    """Start the processes of one of two machines."""
    port = 20_000 + zlib.crc32(part.directory.encode()) % 10_000  # the same for both
    there = ["--nnodes=2", f"--node-rank={machine}", "--master-addr=127.0.0.1"]
    there.append(f"--master-port={port}")
    return start(part, 1, *there, *options, GLOO_SOCKET_IFNAME="lo")


def run_by_launch(part: Part, patch: pytest.MonkeyPatch) -> list[str]:
    """The messages of `launch` about two processes of this file: restarts, and the last error."""
    python = Path(part.directory) / "python"
    python.parent.mkdir()
    script = f'for part; do :; done; exec "{sys.executable}" "{__file__}" "$part"'
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    patch.setattr(sys, "executable", str(python))  # the part is the last of its arguments
    # The processes themselves print to the file of standard error, which this does not replace.
    with (
        redirect_stderr(io.StringIO()) as printed,
        pytest.raises((UserError, AlreadyReported)) as end,
    ):
        launch(2, [json.dumps(asdict(part))])
    return [*printed.getvalue().split("\n")[:-1], str(end.value)]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (
            "all processes",
            "process [01] failed: NCCL error .*: Duplicate GPU detected .* device 1b000;",
        ),
        pytest.param("kernel", "process 1 failed: CUDA error: an illegal memory", marks=SLOW),
        pytest.param("bus", "process 1 was killed by SIGBUS;", marks=SLOW),
    ],
)
def test_early_failure_is_reported_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fault: str,
    cause: str,
) -> None:
    begin = time.monotonic()
    (message,) = run_by_launch(Part(str(tmp_path / "faulty"), fault=fault), monkeypatch)
    assert time.monotonic() - begin < PATIENCE_S / 10
    assert re.search(cause, message)
    assert "lower --processes" not in message
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert "nmtkit:" not in err  # the processes themselves print nothing


@SLOW
def test_late_failure_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = run_by_launch(Part(str(tmp_path / "late"), fault="late kernel"), monkeypatch)
    assert len(messages) == 1 + MAX_RESTARTS
    for message in messages:
        assert "process 1 failed: CUDA error: an illegal memory access" in message


@SLOW
def test_bug_is_one_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    messages = run_by_launch(Part(str(tmp_path / "bug"), fault="bug"), monkeypatch)
    assert messages == ["exit code 1"]
    assert capfd.readouterr().err.count("AssertionError: a bug") == 1


# Units, in this process


def test_step_sends_gradients_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a second process that computes the same and requests a stop."""
    sent: list[int] = []

    def all_reduce(values: torch.Tensor) -> None:
        sent.append(values.numel())
        values *= 2
        if len(values) == 4:
            values[3] += 1

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    model = model_of()
    group = Group(0, 2, CPU)
    trainer = trainer_of(model, corpus(), CONFIG, group, max_tokens=ONE_PER_STEP)
    n_weights = sum(parameter.numel() for parameter in model.parameters())
    for n_steps, prepared in enumerate(trainer.prepared_updates(3), start=1):
        result = trainer.train_step(prepared, save=True).wait()
        assert sent == [n_weights, 4] * n_steps
        assert (result.save_requests, result.stop_requests) == (2, 1)


@pytest.mark.parametrize("overrides", [["training.seed=2"], ["training.patience=3"], []])
def test_different_recipes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str]
) -> None:
    """Without overrides, the artifact is the same, but the version differs."""
    settings = Settings(tmp_path, device="cpu")
    sent: list[torch.Tensor] = []
    theirs = Pipeline(load_recipe("demo", overrides), settings, "demo")

    def same_values(values: torch.Tensor) -> None:
        sent.append(values.clone())
        values += values.flip(0)

    monkeypatch.setattr("torch.distributed.all_reduce", same_values)
    with monkeypatch.context() as patch:
        if not overrides:
            other_code = {**code_identity(), "nmtkit": "0.0.1"}
            patch.setattr(training_setup, "code_identity", lambda: other_code)
        choose_setup(theirs, Group(1, 2, CPU))
    monkeypatch.setattr("torch.distributed.all_reduce", lambda values: values.add_(sent.pop(0)))
    with pytest.raises(UserError, match=r"(artifact|code) .*--set"):
        choose_setup(Pipeline(load_recipe("demo", []), settings, "demo"), Group(0, 2, CPU))


VARIABLES = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


SINGLE_PROCESS = """
import os, sys, torch
from contextlib import suppress
from nmtkit.training.distributed import join
cpu = torch.device("cpu")
with suppress(OSError), join(cpu), torch.compiler.set_stance("force_eager"):
    print(len(os.listdir("/proc/self/task")))
    if "fails" in sys.argv:
        raise OSError
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("ending", ["succeeds", "fails"])
def test_group_ends_its_threads(ending: str) -> None:
    """A thread that still needs Python while Python exits aborts the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ended = subprocess.run(
        [sys.executable, "-c", SINGLE_PROCESS, ending],
        env=environment(**{**VARIABLES, "WORLD_SIZE": "1", "MASTER_PORT": port}),
        check=True,
        capture_output=True,
    )
    during, after = map(int, ended.stdout.split())
    assert during > after == 1


def test_loss_without_agent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the user's scripts start the processes, nothing else reports the loss of one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, value in {**VARIABLES, "WORLD_SIZE": "1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, value)
    reason = "[pair.cc:553] Connection closed by peer\nException raised from a frame"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr("torch.distributed.init_process_group", fail)
    with (
        pytest.raises(UserError, match=r"process 0 failed: .* closed by peer"),
        join(CPU),
    ):
        pass


def test_missing_processes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for name, value in {**VARIABLES, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("nmtkit.training.distributed.TIMEOUT", timedelta(seconds=1))
    with pytest.raises(UserError, match=r"1/2 clients joined"), join(CPU):
        pass


def test_shared_store_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    shared = {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GROUP_WORLD_SIZE": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }
    for name, value in {**VARIABLES, "MASTER_PORT": str(store.port), **shared}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), join(CPU):
        pass
    with pytest.raises(AlreadyReported), join(CPU):  # like another process, or a restarted one
        pass
    monkeypatch.setenv("GROUP_RANK", "1")  # another machine has not printed it yet
    with pytest.raises(UserError, match=r"set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), join(CPU):
        pass
    with pytest.raises(AlreadyReported), join(CPU):
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in VARIABLES if name not in ("RANK", "LOCAL_RANK")),
        *(("RANK", value) for value in ("x", "", "2", "-1")),
        ("WORLD_SIZE", "0"),
        ("WORLD_SIZE", "1.0"),
        ("MASTER_PORT", "70000"),
    ],
)
def test_invalid_rank_variables_are_errors(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    for variable, valid in VARIABLES.items():
        monkeypatch.setenv(variable, valid)
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as refused, join(CPU):
        pass
    message = str(refused.value)
    assert name in message
    assert ("not set" if value is None else repr(value)) in message
    assert message.endswith("unset RANK to train in one process")


if __name__ == "__main__":
    cli.app = work  # type: ignore[assignment]
    cli.main()
