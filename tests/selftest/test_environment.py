"""What is found of a machine, and of one where something is wrong."""

import fcntl
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from nmtkit.machine import Machine
from nmtkit.selftest import environment
from nmtkit.selftest.environment import Check


def found(folder: Path) -> dict[str, Check]:
    """The checks by their names."""
    checks = list(environment.examine(Machine(folder / "runs" / "of" / "mine")))
    return {each.what: each for each in checks}


def test_this_machine_is_fit(tmp_path: Path) -> None:
    checks = found(tmp_path)
    assert {"nmtkit", "versions", "CPU", "memory", "disk", "commits", "locks"} <= {*checks}
    assert [name for name, check in checks.items() if check.state == "failed"] == []
    assert "GB free" in checks["disk"].seen
    assert str(tmp_path) in checks["disk"].seen
    assert not any(tmp_path.iterdir())  # neither the folder nor what was tried there is left


def test_pins_are_those_of_the_file() -> None:
    pins = environment.pins()
    assert pins["torch"] == "2.13.0"
    assert all(version[0].isdigit() for version in pins.values())
    assert len(pins) > 50


def test_other_versions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": f"{environment.pins()['torch']}+cpu", "numpy": "1.0.0"}
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or real(name))
    check = found(tmp_path)["versions"]
    assert check.state == "noted"
    assert f"numpy 1.0.0 (tested: {environment.pins()['numpy']})" in check.seen
    assert "torch" not in check.seen


def test_a_disk_that_locks_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    check = found(tmp_path)["locks"]
    assert check.state == "failed"
    assert "choose another --runs-dir" in check.seen


def test_a_disk_without_links_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert found(tmp_path)["commits"].state == "noted"


def test_little_room_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert found(tmp_path)["disk"].state == "noted"
