"""The script for SLURM in nmtkit/training/README.md, with stand-ins for a cluster's commands."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nmtkit
from nmtkit.training.distributed import is_worker
from nmtkit.utils.errors import AlreadyReported, UserError

README = Path(nmtkit.__file__).parent / "training" / "README.md"
# A stand-in logs its calls. torchrun exits with 1 after a signal, whatever its processes do.
STAND_IN = """#!{python}
import json, os, signal, sys
from pathlib import Path
name, *words = [Path(sys.argv[0]).name, *sys.argv[1:]]
with open("calls", "a", encoding="utf-8") as file:
    file.write(json.dumps([name, words, dict(os.environ)]) + "\\n")
if name == "scontrol" and words[:2] == ["show", "hostnames"]:
    print("gpu7", "gpu9", sep="\\n")
elif name == "srun":
    command = [word for word in words if not word.startswith("--cpus-per-task")]
    os.execvp("torchrun", command[:1] + words)
elif name == "torchrun":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Path("task").write_text(str(os.getpid()), encoding="utf-8")
    signal.pause()
elif name == "scancel":
    os.kill(int(Path("task").read_text(encoding="utf-8")), signal.SIGTERM)
"""
AS_SBATCH_SETS_IT = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_JOB_NODELIST": "gpu[7,9]",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_CPUS_PER_TASK": "64",
    "SLURM_PROCID": "0",
}


@pytest.fixture
def job(tmp_path: Path) -> subprocess.Popen[bytes]:
    """The script, after its task has started."""
    (script,) = re.findall(
        r"```bash\n(#!/usr/bin/env bash\n#SBATCH.*?)```", README.read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "job.sh").write_text(script, encoding="utf-8")
    for name in ("scontrol", "srun", "torchrun", "scancel"):
        (tmp_path / name).write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    subprocess.run(["bash", "-n", "job.sh"], cwd=tmp_path, check=True)
    process = subprocess.Popen(
        ["bash", "job.sh", "a recipe"],
        cwd=tmp_path,
        env={**os.environ, **AS_SBATCH_SETS_IT, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "task").exists() or not (tmp_path / "task").read_text("utf-8"):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def calls(folder: Path) -> list[tuple[str, list[str], dict[str, str]]]:
    lines = (folder / "calls").read_text(encoding="utf-8").split("\n")[:-1]
    return [tuple[Any, ...](json.loads(line)) for line in lines]


def test_stopped_job_is_requeued(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    job.send_signal(signal.SIGTERM)  # as SLURM does for --signal=B:TERM@, before the time limit
    assert job.wait(60) != 0
    names = [name for name, _, _ in calls(tmp_path)]
    assert names == ["scontrol", "srun", "torchrun", "scancel", "scontrol"]
    _, (_, srun_words, variables), _, (_, cancelled, _), (_, requeued, _) = calls(tmp_path)
    assert srun_words[:2] == ["--cpus-per-task=64", "torchrun"]
    assert {"--nnodes=2", "--rdzv-id=1234567", "--rdzv-backend=c10d"} <= {*srun_words}
    (endpoint,) = [word for word in srun_words if word.startswith("--rdzv-endpoint=")]
    host, port = endpoint.removeprefix("--rdzv-endpoint=").split(":")
    assert host == "gpu7"
    assert 1_024 < int(port) < 32_768  # below the ports that Linux gives to outgoing connections
    assert srun_words[-6:] == ["--no-python", "nmtkit", "train", "a recipe", "--runs-dir", "runs"]
    assert variables["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    (limit,) = re.findall(r"--signal=B:TERM@(\d+)", README.read_text("utf-8"))
    assert 30 < int(variables["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) < int(limit)
    assert cancelled == ["--signal=TERM", "1234567"]
    assert requeued == ["requeue", "1234567"]


def test_job_ends_with_training(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    os.kill(int((tmp_path / "task").read_text("utf-8")), signal.SIGTERM)
    assert job.wait(60) == 1
    assert [name for name, _, _ in calls(tmp_path)] == ["scontrol", "srun", "torchrun"]


@pytest.mark.parametrize("variables", [{}, {"SLURM_STEP_NUM_TASKS": "2", "RANK": "0"}])
def test_batch_script_is_not_a_worker(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in {**AS_SBATCH_SETS_IT, **variables}.items():
        monkeypatch.setenv(name, value)
    assert is_worker() == ("RANK" in variables)


def test_srun_without_torchrun_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "8")
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(UserError, match=r"8 times .*torchrun"):
        is_worker()
    for task in range(1, 8):
        monkeypatch.setenv("SLURM_PROCID", str(task))
        with pytest.raises(AlreadyReported) as silent:
            is_worker()
        assert silent.value.exit_code == 1
