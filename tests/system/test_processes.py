"""`nmtkit train` on several processes that it starts itself."""

import base64
import ipaddress
import os
import pickle
import pty
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch.distributed as dist

from nmtkit.decoding.lines import Text, Translator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.files import read_json
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import load_weights
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.store import open_directory
from nmtkit.training.metrics import read_metrics
from nmtkit.training.signals import SAME_SIGNAL_S
from system.command import (
    RECIPE,
    artifact,
    children,
    contents,
    done,
    environment,
    nmtkit,
    outcome,
    read_lines,
    sentence,
    start,
    steps_done,
    wait_until,
)
from system.conftest import Finished

SLOW = pytest.mark.slow
BOUND_S = 5.0  # for the end of a process whose command ended: 0.5 s, more on a busy machine
# Micro-batches that do not depend on the number of processes, so that dropout does not either.
TRAIN = ("train", RECIPE, "--max-tokens", "250")
TWO = (*TRAIN, "--processes", "2")
ENDLESS = ("--set", "training.max_steps=100000")


def assert_trained_as(folder: Path, finished: Finished) -> None:
    """The losses of all steps agree, those of the last ones as far as rounding lets them."""
    ours, theirs = (
        read_metrics(trained / "metrics.jsonl")
        for trained in (artifact(folder, "train"), finished.artifact("train"))
    )
    for key in ("step", "tgt_tokens"):
        assert [line[key] for line in ours] == [line[key] for line in theirs]
    assert ours[-1]["loss"] == pytest.approx(theirs[-1]["loss"], abs=0.2)
    assert ours[-1]["dev_sacrebleu"] > 50


def listening(pids: list[int]) -> Iterator[tuple[str, int]]:
    """The addresses and ports that the processes listen on."""
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
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                yield str(ipaddress.ip_address(b"".join(words))), int(port, 16)


def is_alive(pid: int) -> bool:
    command_line = Path(f"/proc/{pid}/cmdline")
    return command_line.exists() and command_line.read_bytes() != b""


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + BOUND_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_processes_listen_on_loopback_alone_and_make_one_artifact(
    prepared: Path, finished: Finished
) -> None:
    temporary = prepared / "tmp"
    temporary.mkdir()
    process = start(prepared, *TWO, env=environment(TMPDIR=str(temporary)))
    wait_until(lambda: steps_done(prepared) >= 1, process)
    process.send_signal(signal.SIGSTOP)  # so that they are still there, however busy the machine
    workers = children(process.pid)
    for pids, n_at_least in (([process.pid], 1), (workers, 2)):
        addresses = [address for address, _ in listening(pids)]
        assert len(addresses) >= n_at_least
        assert {*addresses} <= {"127.0.0.1", "::1"}
    for pid in workers:  # what it takes where this machine's own name is no loopback address
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert {b"GLOO_SOCKET_IFNAME=lo", b"NCCL_SOCKET_IFNAME==lo"} <= {*variables}
    process.send_signal(signal.SIGCONT)

    ended = done(outcome(process))
    path = artifact(prepared, "train")
    assert ended.out == f"{path.relative_to(prepared)}\n"
    assert path.name == finished.artifact("train").name
    assert ended.err.count("train: 120 of 120 steps") == 1  # one of them tells of its progress
    assert "orch" not in ended.err  # torchrun keeps quiet
    assert not any(temporary.iterdir())
    assert read_json(path / "measurements.json")["processes"] == 2
    assert_trained_as(prepared, finished)


class Intruder:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@SLOW
def test_nothing_that_is_written_to_the_store_is_unpickled(
    prepared: Path, finished: Finished
) -> None:
    """Overwrite all that the store holds, then kill a process, so that they meet again."""
    process = start(prepared, *TWO)
    wait_until(lambda: steps_done(prepared) >= 25, process)
    pickled = pickle.dumps(Intruder(prepared / "unpickled"), protocol=0)
    for _, port in listening([process.pid]):
        store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)  # type: ignore[attr-defined]
        for key in store.list_keys():
            store.set(key, base64.b64encode(pickled).decode("ascii"))
    os.kill(children(process.pid)[1], signal.SIGKILL)
    ended = outcome(process)
    assert not (prepared / "unpickled").exists()
    assert "restart 1" in done(ended).err
    assert_trained_as(prepared, finished)


STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]


@SLOW
@pytest.mark.parametrize("number", STOPS)
def test_stopped_processes_save_and_one_goes_on(
    prepared: Path, finished: Finished, number: signal.Signals
) -> None:
    process = start(prepared, *TWO)
    wait_until(lambda: steps_done(prepared) >= 13, process)
    begin = time.monotonic()
    process.send_signal(number)
    stopped = outcome(process)
    assert stopped.code == 128 + number
    assert time.monotonic() - begin < 30
    said = sentence(stopped)
    assert f"stopped by {number.name} after step " in said
    step = int(said.split("after step ")[1].split(" ")[0])
    assert step == steps_done(prepared)
    (draft,) = prepared.glob("runs/train/*.partial")
    assert (draft / "checkpoints" / f"step-{step:08d}" / "manifest.json").is_file()
    done(nmtkit(prepared, *TRAIN))
    assert_trained_as(prepared, finished)


@SLOW
def test_second_signal_ends_all_at_once(prepared: Path) -> None:
    process = start(prepared, *TWO)
    wait_until(lambda: steps_done(prepared) >= 1, process)
    first, second = children(process.pid)
    os.kill(second, signal.SIGSTOP)  # no step can be finished any more
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
def test_closed_terminal_stops_training_saved(prepared: Path, n_processes: str) -> None:
    """The terminal is gone when its hang-up comes: nothing can be told any more."""
    terminal, its_end = pty.openpty()
    command = (*TRAIN, *ENDLESS, "--processes", n_processes)
    process = start(prepared, *command, preexec_fn=lambda: os.login_tty(its_end))
    os.close(its_end)
    wait_until(lambda: steps_done(prepared) >= 13, process)
    os.close(terminal)
    assert outcome(process).code == 128 + signal.SIGHUP
    step = steps_done(prepared)
    (saved,) = prepared.glob(f"runs/train/*.partial/checkpoints/step-{step:08d}/manifest.json")
    assert saved.is_file()


@SLOW
def test_training_outlives_its_terminal_under_nohup(prepared: Path) -> None:
    process = start(prepared, *TWO, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: steps_done(prepared) >= 1, process)
    process.send_signal(signal.SIGHUP)
    done(outcome(process))


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the command and see its two processes end."""
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    wait_until_ended(workers)
    outcome(process)


@SLOW
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 2.0])
def test_command_that_is_killed_takes_processes_with_it_that_only_begin(
    prepared: Path, seconds: float
) -> None:
    process = start(prepared, *TWO, *ENDLESS)
    wait_until(lambda: len(children(process.pid)) == 2, process)
    time.sleep(seconds)
    kill(process)


@SLOW
def test_command_that_is_killed_leaves_no_process_behind_and_is_gone_on_with(
    prepared: Path, finished: Finished
) -> None:
    process = start(prepared, *TWO)
    wait_until(lambda: steps_done(prepared) >= 13, process)
    kill(process)
    assert steps_done(prepared) < 120
    done(nmtkit(prepared, *TWO))
    assert_trained_as(prepared, finished)


@SLOW
def test_processes_that_are_killed_again_and_again_end_in_one_sentence(prepared: Path) -> None:
    process = start(prepared, *TWO, *ENDLESS)
    killed: set[int] = set()

    def kill_the_second() -> bool:
        workers = [pid for pid in children(process.pid) if pid not in killed]
        if len(workers) == 2 and steps_done(prepared) >= 1:
            killed.update(workers)
            os.kill(workers[1], signal.SIGKILL)
        return len(killed) == 8

    wait_until(kill_the_second, process)
    said = sentence(outcome(process))
    assert said.startswith("nmtkit: a training process was ended by SIGKILL, 4 times; ")


@SLOW
def test_deterministic_runs_have_the_same_bits(prepared: Path, finished: Finished) -> None:
    shutil.copytree(prepared / "runs", prepared / "again")
    moments = []
    for runs in ("runs", "again"):
        done(nmtkit(prepared, "train", RECIPE, "--deterministic", "--runs-dir", runs))
        trained = prepared / runs / "train" / finished.artifact("train").name
        assert read_json(trained / "measurements.json")["deterministic"] is True
        moments.append(contents(trained / "checkpoints" / "step-00000120"))
    assert moments[0] == moments[1]


def test_dev_score_is_sacrebleu_of_what_the_last_weights_make_of_the_first_dev_lines(
    finished: Finished,
) -> None:
    prepared, trained = finished.artifact("prepare"), finished.artifact("train")
    description = read_json(trained / "model.json")
    model = Transformer(ModelConfig.model_validate(description["config"]), description["n_rows"])
    load_weights(accelerate(model), trained / "checkpoints" / "step-00000120" / "model.safetensors")
    src, refs = (read_lines(finished.folder / f"dev.{lang}") for lang in ("en", "de"))
    greedy = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
    text = Text.load(open_directory(prepared), description["n_rows"])
    engine = TorchEngine([model], text.subword.n_tokens)
    translator = Translator(text, engine, greedy, max_subwords(model.config))
    translated = translator.translate(src, progress=lambda _: None)
    bleu = sacrebleu.corpus_bleu([translation.text for translation in translated], [refs])
    last = read_metrics(trained / "metrics.jsonl")[-1]
    assert last["dev_sacrebleu"] == bleu.score
    assert "first 20 lines of dev" in last["dev_sacrebleu_how"]
