"""nmtkit selftest: what it finds of a machine, what it prints, and its exit code."""

import json
import re
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from system.command import done, nmtkit
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import selftest as command
from nmtkit.cli.selftest import Check
from nmtkit.config.settings import Settings

RUNNER = CliRunner()


def found(folder: Path) -> Mapping[str, Check]:
    """What is found of the machine, by its name."""
    return {each.what: each for each in command.environment(Settings(folder / "runs" / "of"))}


def test_this_machine_is_fit(tmp_path: Path) -> None:
    checks = found(tmp_path)
    assert {"nmtkit", "versions", "CPU", "memory", "disk"} <= {*checks}
    assert "failed" not in [check.state for check in checks.values()]
    assert f"GB free in {tmp_path}" in checks["disk"].seen
    assert not any(tmp_path.iterdir())  # the folder is not made


def test_what_is_wrong_with_a_machine_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = command.pins()
    versions = {"torch": f"{pins['torch']}+cpu", "numpy": "1.0.0"}
    real, usage = metadata.version, shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or real(name))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    checks = found(tmp_path)
    states = [checks[name].state for name in ("versions", "disk")]
    assert states == ["noted", "noted"]
    assert f"numpy 1.0.0 (tested: {pins['numpy']})" in checks["versions"].seen
    assert "torch" not in checks["versions"].seen


CHECKS = [Check("locks", "held", "fine"), Check("BPE learned", "failed", "they differ")]


def test_a_failure_is_printed_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS))
    result = RUNNER.invoke(cli.app, ["selftest"])
    assert result.exit_code == 1
    assert str(result.exception) == "BPE learned failed, as said above"
    for check in CHECKS:
        assert re.search(rf"{check.state} +│ {check.what} +│ {check.seen}", result.stdout)
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS[:1]))
    result = RUNNER.invoke(cli.app, ["selftest", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [vars(CHECKS[0])]


def test_losses_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for off, state in ((0.0, "held"), (0.01, "failed")):
        monkeypatch.setattr(command, "LOSSES", {1: command.LOSSES[1] + off})
        assert command.demo(tmp_path).state == state


@pytest.mark.slow
def test_all_of_it_as_a_user_runs_it(tmp_path: Path) -> None:
    checks = json.loads(done(nmtkit(tmp_path, "selftest", "--json")).out)
    assert {each["state"] for each in checks} <= {"held", "noted", "skipped"}
    assert checks[-1]["what"] == "demo"
