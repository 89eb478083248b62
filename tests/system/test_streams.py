"""Standard output and standard error: full disks, closed streams, slow readers and none."""

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from system.command import (
    PATIENCE_S,
    RECIPE,
    Outcome,
    artifact,
    done,
    environment,
    outcome,
    sentence,
    start,
)
from system.conftest import Finished

BUFFERED = {"PYTHONUNBUFFERED": ""}
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
PRINTING = ("corpora", "corpora --json", "--help")  # a table, JSON, text
PIPE_BYTES = 4096  # smaller than what these commands print


def run_shell(command: str, folder: Path, **variables: str) -> Outcome:
    """Run a line of bash in which `nmtkit` runs the code under test."""
    script = f'nmtkit() {{ "{sys.executable}" -m nmtkit "$@"; }}\n{command}'
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    return outcome(process)


@pytest.fixture(params=[BUFFERED, UNBUFFERED], ids=["buffered", "unbuffered"])
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


@pytest.mark.parametrize("command", PRINTING)
@pytest.mark.parametrize("redirection", ["> /dev/full", ">&-", "> out"])
def test_unwritten_results_fail(
    command: str, redirection: str, variables: dict[str, str], tmp_path: Path
) -> None:
    limit = "ulimit -f 0; " if redirection == "> out" else ""
    ended = run_shell(f"{limit}nmtkit {command} {redirection}", tmp_path, **variables)
    assert "standard output" in sentence(ended)
    assert ended.code == 1


def test_short_write_of_a_file_fails(variables: dict[str, str], tmp_path: Path) -> None:
    """The last write fits only in part."""
    whole = run_shell("nmtkit corpora --json", tmp_path).out
    n_blocks = len(whole.encode()) // 1024
    assert len(whole.encode()) % 1024
    ended = run_shell(f"ulimit -f {n_blocks}; nmtkit corpora --json > out", tmp_path, **variables)
    assert "standard output" in sentence(ended)
    assert (tmp_path / "out").stat().st_size == n_blocks * 1024


@pytest.mark.parametrize("command", PRINTING)
def test_closed_pipe_is_silent(command: str, variables: dict[str, str], tmp_path: Path) -> None:
    line = f"nmtkit {command} | true; echo ${{PIPESTATUS[0]}}"
    ended = run_shell(line, tmp_path, **variables)
    assert (ended.out, ended.err) == (f"{128 + signal.SIGPIPE}\n", "")


def slow_pipe(*, is_blocking: bool) -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(writer, is_blocking)
    return reader, writer


@pytest.mark.parametrize("is_blocking", [True, False])
def test_slow_reader_gets_all(is_blocking: bool, variables: dict[str, str], tmp_path: Path) -> None:
    """The writer is stopped in the middle of a write, as by Ctrl-Z, and continued."""
    whole = run_shell("nmtkit corpora --json", tmp_path).out
    assert len(whole) > 2 * PIPE_BYTES
    reader, writer = slow_pipe(is_blocking=is_blocking)
    with subprocess.Popen(
        [sys.executable, "-m", "nmtkit", "corpora", "--json"],
        env=environment(**variables),
        stdout=writer,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(writer)
        seen = b""
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            assert select.select([pipe], [], [], PATIENCE_S)[0]
            for _ in range(3):
                time.sleep(0.1)  # until the pipe is full
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.05)
                process.send_signal(signal.SIGCONT)
                seen += pipe.read(1000)
            while block := pipe.read(1000):
                seen += block
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, b"")
    assert seen.decode() == whole


def test_unwritten_translations_fail(
    finished: Finished, variables: dict[str, str], tmp_path: Path
) -> None:
    bundle = finished.artifact("average")
    text = tmp_path / "text"
    text.write_text("a b c d e f g h\n" * 200, encoding="utf-8", newline="\n")
    command = f"nmtkit translate --bundle '{bundle}' < text > out"
    ended = run_shell(f"ulimit -f 1; {command}", tmp_path, **variables)
    assert "standard output" in sentence(ended)
    done(run_shell(command, tmp_path, **variables))
    assert (tmp_path / "out").read_bytes().count(b"\n") == 200


def test_typed_line_is_answered_at_once(finished: Finished, variables: dict[str, str]) -> None:
    bundle = str(finished.artifact("average"))
    process = start(finished.folder, "translate", "--bundle", bundle, env=environment(**variables))
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"a b\n", b"c d e\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], PATIENCE_S)[0]
            assert process.stdout.readline().endswith(b"\n")
        process.communicate(timeout=PATIENCE_S)


# Standard error


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["2> >(true)", "2>&-", "2> /dev/full"])
@pytest.mark.parametrize("command", ["prepare tiny.toml --workers 2", "inspect tiny.toml"])
def test_lost_messages_change_no_result(command: str, gone: str, complete: Path) -> None:
    if command.startswith("prepare"):
        shutil.rmtree(complete / "runs" / "prepare")
    silent = done(run_shell(f"nmtkit {command} {gone}", complete))
    assert silent.out == done(run_shell(f"nmtkit {command}", complete)).out


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", ["1", "2"])
def test_training_without_log_reader(n_processes: str, prepared: Path) -> None:
    command = f"nmtkit train {RECIPE} --processes {n_processes}"
    ended = run_shell(f"{command} 2>&1 | head -1; echo ${{PIPESTATUS[0]}}", prepared)
    # The exit code reports that the result, the path of the artifact, could not be printed.
    assert ended.out.removesuffix("\n").split("\n")[-1] == str(128 + signal.SIGPIPE)
    assert artifact(prepared, "train").is_dir()


def test_error_without_stderr_fails(tmp_path: Path) -> None:
    ended = run_shell("nmtkit status none.toml 2> /dev/full", tmp_path)
    assert (ended.code, ended.err) == (1, "")


def test_nonblocking_error_pipe_gets_all() -> None:
    reader, writer = slow_pipe(is_blocking=False)
    name = "x" * (3 * PIPE_BYTES)
    with subprocess.Popen(
        [sys.executable, "-m", "nmtkit", "status", name], env=environment(), stderr=writer
    ) as process:
        os.close(writer)
        time.sleep(1.0)
        with os.fdopen(reader, "rb") as pipe:
            message = pipe.read()
    assert process.returncode == 1
    assert name.encode() in message
