"""`nmtkit train` on several processes that it starts itself."""

import base64
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from nmtkit.store.records import read_json
from nmtkit.training.metrics import read_metrics
from nmtkit.utils.processes import SAME_SIGNAL_S
from system.command import (
    RECIPE,
    artifact,
    children,
    done,
    environment,
    nmtkit,
    outcome,
    sentence,
    start,
    steps_done,
    wait_until,
)
from system.conftest import Finished

SLOW = pytest.mark.slow
BOUND_S = 5.0  # timeout for the end of a process after its command: 0.5 s on an idle machine
# Micro-batches that do not depend on the number of processes, so that dropout masks do not either.
TRAIN = ("train", RECIPE, "--max-tokens", "250")
TWO = (*TRAIN, "--processes", "2")
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}  # 127.0.0.1 and ::1
ENDLESS = ("--set", "training.max_steps=100000")


def training(folder: Path, n_steps: int, *command: str, **popen: Any) -> subprocess.Popen[bytes]:
    """Start training, by default on two processes, and wait until `n_steps` steps are done."""
    process = start(folder, *(command or TWO), **popen)
    wait_until(lambda: steps_done(folder) >= n_steps, process)
    return process


def assert_saved(folder: Path) -> None:
    """Assert that the last step was saved."""
    name = f"step-{steps_done(folder):08d}"
    assert list(folder.glob(f"runs/train/*.partial/checkpoints/{name}/manifest.json"))


def assert_trained_as(folder: Path, finished: Finished) -> None:
    """Assert that training had the same updates as `finished` and nearly the same last loss."""
    ours, theirs = (
        read_metrics(trained / "metrics.jsonl")
        for trained in (artifact(folder, "train"), finished.artifact("train"))
    )
    for key in ("step", "tgt_tokens"):
        assert [line[key] for line in ours] == [line[key] for line in theirs]
    assert ours[-1]["loss"] == pytest.approx(theirs[-1]["loss"], abs=0.2)
    assert ours[-1]["dev_sacrebleu"] > 50


def listening(pids: list[int]) -> Iterator[tuple[str, int]]:
    """The addresses, in hexadecimal, and ports that processes listen on."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed in the meantime
                sockets.add(str(descriptor.readlink()))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").split("\n")[1:-1]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                yield address, int(port, 16)


def is_alive(pid: int) -> bool:
    command_line = Path(f"/proc/{pid}/cmdline")
    return command_line.exists() and command_line.read_bytes() != b""


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + BOUND_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_train_together(prepared: Path, finished: Finished) -> None:
    temporary = prepared / "tmp"
    temporary.mkdir()
    process = training(prepared, 1, env=environment(TMPDIR=str(temporary)))
    process.send_signal(signal.SIGSTOP)  # so that they are still there, however busy the machine
    workers = children(process.pid)
    for pids, min_addresses in (([process.pid], 1), (workers, 2)):
        addresses = [address for address, _ in listening(pids)]
        assert len(addresses) >= min_addresses
        assert {*addresses} <= LOOPBACK
    for pid in workers:  # needed on machines whose own name is not a loopback address
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {b"GLOO_SOCKET_IFNAME=lo", b"NCCL_SOCKET_IFNAME==lo"} <= {*variables}
    process.send_signal(signal.SIGCONT)

    ended = done(outcome(process))
    path = artifact(prepared, "train")
    assert ended.out == f"{path.relative_to(prepared)}\n"
    assert path.name == finished.artifact("train").name
    assert ended.err.count("train: 120 of 120 steps") == 1  # only one of them prints progress
    assert "orch" not in ended.err  # no warnings of torch
    assert not any(temporary.iterdir())
    assert read_json(path / "measurements.json")["processes"] == 2
    assert_trained_as(prepared, finished)


@SLOW
def test_store_is_not_unpickled(prepared: Path, finished: Finished) -> None:
    """Overwrite all keys of the store, then kill a process, so that the others read the store."""
    process = training(prepared, 25)
    pickled = f"cposix\nmkdir\n(V{prepared}/unpickled\ntR.".encode()  # calls mkdir
    for _, port in listening([process.pid]):
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)  # type: ignore[attr-defined]
        for key in store.list_keys():
            store.set(key, base64.b64encode(pickled).decode("ascii"))
    os.kill(children(process.pid)[1], signal.SIGKILL)
    ended = outcome(process)
    assert not (prepared / "unpickled").exists()
    assert "restart 1" in done(ended).err
    assert_trained_as(prepared, finished)


@SLOW
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_stopped_processes_save(prepared: Path, finished: Finished, number: signal.Signals) -> None:
    process = training(prepared, 13)
    begin = time.monotonic()
    process.send_signal(number)
    stopped = outcome(process)
    assert stopped.code == 128 + number
    assert time.monotonic() - begin < 30
    assert f"{number.name} after step {steps_done(prepared)} " in sentence(stopped)
    assert_saved(prepared)
    done(nmtkit(prepared, *TRAIN))
    assert_trained_as(prepared, finished)


@SLOW
def test_second_signal_stops_at_once(prepared: Path) -> None:
    process = training(prepared, 1)
    first, second = children(process.pid)
    os.kill(second, signal.SIGSTOP)  # so that no step can finish
    process.terminate()
    time.sleep(SAME_SIGNAL_S + 0.5)
    assert process.poll() is None
    process.terminate()
    assert process.wait(BOUND_S) == -signal.SIGTERM
    os.kill(second, signal.SIGCONT)
    wait_until_ended([first, second])
    outcome(process)


@SLOW
@pytest.mark.parametrize("n_processes", ["1", "2"])
def test_closed_terminal_saves_training(prepared: Path, n_processes: str) -> None:
    """Nothing can be printed: the terminal is closed before SIGHUP arrives."""
    terminal, its_end = pty.openpty()
    command = (*TRAIN, *ENDLESS, "--processes", n_processes)
    process = training(prepared, 13, *command, preexec_fn=lambda: os.login_tty(its_end))
    os.close(its_end)
    os.close(terminal)
    assert outcome(process).code == 128 + signal.SIGHUP
    assert_saved(prepared)


@SLOW
def test_nohup_training_survives_sighup(prepared: Path) -> None:
    nohup = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    process = training(prepared, 1, preexec_fn=nohup)
    process.send_signal(signal.SIGHUP)
    done(outcome(process))


@SLOW
@pytest.mark.parametrize(("n_steps", "seconds"), [(0, 0.0), (0, 0.3), (0, 1.0), (13, 0.0)])
def test_killed_command_leaves_no_process(
    prepared: Path, finished: Finished, n_steps: int, seconds: float
) -> None:
    process = training(prepared, n_steps)
    wait_until(lambda: len(children(process.pid)) == 2, process)
    time.sleep(seconds)
    workers = children(process.pid)
    process.kill()
    process.wait()
    wait_until_ended(workers)
    outcome(process)
    assert steps_done(prepared) < 120
    done(nmtkit(prepared, *TWO))
    assert_trained_as(prepared, finished)


@SLOW
def test_repeated_kills_stop_training(prepared: Path) -> None:
    process = start(prepared, *TWO, *ENDLESS)
    killed: set[int] = set()
    n_steps = 0

    def kill_the_second() -> bool:
        nonlocal n_steps
        workers = [pid for pid in children(process.pid) if pid not in killed]
        if len(workers) == 2 and steps_done(prepared) > n_steps + 5:
            n_steps = steps_done(prepared)
            killed.update(workers)
            os.kill(workers[1], signal.SIGKILL)
        return len(killed) == 8

    wait_until(kill_the_second, process)
    ended = outcome(process)
    assert "training process 1 was killed by SIGKILL" in sentence(ended)
    assert ended.err.count("warning: training process 1 was killed by SIGKILL; restart ") == 3


@pytest.mark.skipif(sys.platform != "linux", reason="takes the network away with unshare")
def test_missing_loopback_is_an_error(prepared: Path) -> None:
    without_network = ["unshare", "--user", "--net"]
    if subprocess.run([*without_network, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not create a network namespace")
    process = subprocess.Popen(
        [*without_network, sys.executable, "-m", "nmtkit", *TWO],
        cwd=prepared,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ended = outcome(process)
    assert ended.code == 1
    assert "127.0.0.1" in sentence(ended)
    assert "frame #" not in ended.err
