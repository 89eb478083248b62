"""nmtkit as its users meet it: processes, their exit codes, what they print and leave on disk."""

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
UNPROMISED = ("measurements.json", "metrics.jsonl")  # what was measured, not what was made
PATIENCE_S = 120.0  # for what takes seconds on an idle core


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def environment(**extra: str) -> dict[str, str]:
    """The variables of a command: one thread, so that tests can share a machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **extra}


def start(
    folder: Path, *args: str, env: Mapping[str, str] | None = None, **popen: Any
) -> subprocess.Popen[bytes]:
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
    with process:
        out, err = process.communicate(stdin, timeout=PATIENCE_S)
    return Outcome(process.returncode, out.decode("utf-8"), err.decode("utf-8"))


def nmtkit(
    folder: Path, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, **popen: Any
) -> Outcome:
    """Run `nmtkit ARGS` in `folder` to its end.

    It is a fork of this process, which has imported everything, unless it needs something of its
    own: variables, limits, or what else `popen` says.
    """
    if env is not None or popen:
        return outcome(start(folder, *args, env=env, **popen), stdin)
    import_everything()
    with ExitStack() as stack:
        files = tuple(stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        source, out, err = files
        source.write(stdin)
        source.seek(0)
        if (pid := os.fork()) == 0:
            signal.alarm(int(PATIENCE_S))
            os._exit(be(lambda: run_command(*args), folder, files))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for file in (out, err):
            file.seek(0)
        return Outcome(code, out.read().decode("utf-8"), err.read().decode("utf-8"))


@cache
def import_everything() -> None:
    """Import once what forks would each import."""
    for each in pkgutil.walk_packages(package.__path__, "nmtkit."):
        importlib.import_module(each.name)
    importlib.import_module("torch._dynamo")  # by torch's optimizers


def be(work: Callable[[], object], folder: Path, files: tuple[IO[Any], ...]) -> int:
    """Let this fork do `work` in `folder` with these standard streams; return its exit code."""
    try:
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(descriptor, mode, buffering=1, encoding="utf-8", closefd=False)
            for descriptor, mode in enumerate("rww")
        )
        os.chdir(folder)
        warnings.resetwarnings()
        # So does each process that it starts.
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
    """Be `nmtkit ARGS`, unless it ends with an error, which SystemExit tells."""
    sys.argv = ["nmtkit", *args]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise


def done(ended: Outcome) -> Outcome:
    assert ended.code == 0, ended.err
    return ended


def sentence(ended: Outcome) -> str:
    """What a command that refused said: one line, the last of standard error."""
    assert ended.code != 0
    assert "Traceback" not in ended.err
    lines = ended.err.removesuffix("\n").split("\n")
    said = [line for line in lines if line.startswith("nmtkit: ")]
    assert said == lines[-1:], ended.err
    return said[0]


def wait_until(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert process.poll() is None, "the command ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """The processes that a process started, oldest first."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return sorted(int(child) for child in listed.split())


def steps_done(folder: Path) -> int:
    files = list(folder.glob("runs/train/*.partial/checkpoints/metrics.jsonl"))
    return files[0].read_bytes().count(b"\n") if files else 0


def artifact(folder: Path, stage: str) -> Path:
    (path,) = folder.glob(f"runs/{stage}/*/manifest.json")
    return path.parent


def contents(folder: Path) -> dict[str, str]:
    """The hash of each file in `folder` whose bytes are promised."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in UNPROMISED and path.suffix not in (".lock", ".html")
    }


def traces(folder: Path) -> dict[str, tuple[int, int, str]]:
    """When each file and folder changed last, its size and its hash."""
    found = {}
    for path in folder.rglob("*"):
        stat = path.stat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[path.relative_to(folder).as_posix()] = (stat.st_mtime_ns, stat.st_size, content)
    return found


def flip_byte(path: Path, place: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.write_bytes(content)


def read_lines(path: Path) -> list[str]:
    """The lines of a text, split at line feeds alone."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text.removesuffix("\n").split("\n")


def status(folder: Path, *args: str) -> dict[str, Any]:
    """What `nmtkit status --json` says of each stage."""
    ended = done(nmtkit(folder, "status", RECIPE, "--json", *args))
    stages: dict[str, Any] = json.loads(ended.out)["stages"]
    return stages
