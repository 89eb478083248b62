"""Killed before any operation that changes a file, and run again: the same bytes, never stuck."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
# An undisturbed run of each stage changes files about so often: what a test sees must not shrink.
OPERATIONS = {
    "download": 12,
    "prepare": 120,
    "train": 70,
    "average": 18,
    "translate": 12,
    "score": 10,
}


def kill(*arguments: str) -> dict[str, int]:
    """Run `system.kills` and return how many kills each stage survived."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-m", "system.kills", *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    kills = dict.fromkeys(OPERATIONS, 0)
    for line in ended.stdout.removesuffix("\n").split("\n"):
        report = json.loads(line)
        assert report["blocked"] == report["different"] == [], ended.stderr
        assert report["operations"] >= OPERATIONS[report["stage"]]
        kills[report["stage"]] += report["kills"]
    assert ended.returncode == 0, ended.stderr
    return kills


def test_some_kills_lose_nothing() -> None:
    assert min(kill("--orders", "reversed,shuffled", "--points", "3").values()) >= 6


@pytest.mark.slow
def test_no_kill_before_any_operation_in_any_order_of_names_loses_anything() -> None:
    kills = kill()
    for stage, n_operations in OPERATIONS.items():
        assert kills[stage] >= 3 * n_operations
