"""Run nmtkit as its users do: as processes with an exit code, output and files on disk."""

import hashlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import torch

import nmtkit as package
from nmtkit.__main__ import main

RECIPE = "tiny.toml"
UNPROMISED = ("measurements.json", "metrics.jsonl")  # measurements, which differ between runs
PATIENCE_S = 120.0  # timeout; a command takes seconds on an idle core


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


def environment(**extra: str) -> dict[str, str]:
    """Environment variables of a command: one thread, so that tests can share a machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def start(
    folder: Path, *args: str, env: Mapping[str, str] | None = None, **popen: Any
) -> subprocess.Popen[bytes]:
    """Start `nmtkit ARGS` in `folder` and return at once; `popen` has more options of Popen."""
    return subprocess.Popen(
        [sys.executable, "-m", "nmtkit", *args],
        cwd=folder,
        env=environment() if env is None else env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **popen,
    )


def outcome(process: subprocess.Popen[bytes], stdin: bytes = b"") -> Outcome:
    """Send `stdin` to a process and wait until it exits."""
    with process:
        out, err = process.communicate(stdin, timeout=PATIENCE_S)
    return Outcome(process.returncode, out.decode("utf-8"), err.decode("utf-8"))


def nmtkit(
    folder: Path, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, **popen: Any
) -> Outcome:
    """Run `nmtkit ARGS` in `folder` and wait until it exits.

    It runs in a fork of this process, which has imported everything. Only if it needs environment
    variables or options of Popen (such as limits) of its own, a new process is started.
    """
    if env is not None or popen:
        return outcome(start(folder, *args, env=env, **popen), stdin)
    import_everything()
    with ExitStack() as stack:
        files = tuple(stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        source, out, err = files
        source.write(stdin)
        source.seek(0)
        pid = os.fork()
        if pid == 0:
            signal.alarm(int(PATIENCE_S))
            os._exit(run_in_fork(lambda: run_command(*args), folder, files))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for file in (out, err):
            file.seek(0)
        return Outcome(code, out.read().decode("utf-8"), err.read().decode("utf-8"))


@cache
def import_everything() -> None:
    """Import all modules once, so that forks need not."""
    for module in pkgutil.walk_packages(package.__path__, "nmtkit."):
        importlib.import_module(module.name)
    importlib.import_module("torch._dynamo")  # torch's optimizers import it


def run_in_fork(work: Callable[[], object], folder: Path, files: tuple[IO[Any], ...]) -> int:
    """Run `work` as the program of this forked process.

    Args:
        work: The function to run.
        folder: Working directory.
        files: Standard input, output and error.

    Returns:
        The exit code.
    """
    try:
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(descriptor, mode, buffering=1, encoding="utf-8", closefd=False)
            for descriptor, mode in enumerate("rww")
        )
        os.chdir(folder)
        warnings.resetwarnings()
        # One thread, also in the processes that it starts.
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - nothing may leave the fork
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def run_command(*args: str) -> None:
    """Run `nmtkit ARGS` in this process; an error raises SystemExit."""
    sys.argv = ["nmtkit", *args]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def done(ended: Outcome) -> Outcome:
    """Assert that a command succeeded."""
    assert ended.code == 0, ended.err
    return ended


def sentence(ended: Outcome) -> str:
    """The error message of a failed command: one line, the last one of standard error."""
    assert ended.code != 0
    assert "Traceback" not in ended.err
    lines = ended.err.removesuffix("\n").split("\n")
    messages = [line for line in lines if line.startswith("nmtkit: ")]
    assert messages == lines[-1:], ended.err
    return messages[0]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for a condition while `process` is running."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, "the command exited too early"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """The processes that a process started, oldest first."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return sorted(int(child) for child in listed.split())


def steps_done(folder: Path) -> int:
    """The number of training steps that a draft has recorded."""
    files = list(folder.glob("runs/train/*.partial/checkpoints/metrics.jsonl"))
    return files[0].read_bytes().count(b"\n") if files else 0


def artifact(folder: Path, stage: str) -> Path:
    """The only artifact of a stage."""
    (path,) = folder.glob(f"runs/{stage}/*/manifest.json")
    return path.parent


def contents(folder: Path) -> dict[str, str]:
    """The hash of every file in `folder` that must not differ between runs."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in UNPROMISED and path.suffix not in (".lock", ".html")
    }


def traces(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Modification time, size and hash of every file and folder."""
    found = {}
    for path in folder.rglob("*"):
        stat = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size, content)
    return found


def flip_byte(path: Path, place: int | None = None) -> None:
    """Flip a bit of the byte at `place`, by default in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def read_lines(path: Path) -> list[str]:
    """The lines of a text, split only at line feeds."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def status(folder: Path, *args: str) -> dict[str, Any]:
    """The stages that `nmtkit status --json` prints."""
    ended = done(nmtkit(folder, "status", RECIPE, "--json", *args))
    stages: dict[str, Any] = json.loads(ended.out)["stages"]
    return stages
