"""nmtkit selftest: its output, its exit code and its options."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system.command import done, nmtkit
from typer.testing import CliRunner

from nmtkit.benchmark import selftest_gpu
from nmtkit.benchmark.selftest import Check
from nmtkit.cli import app as cli
from nmtkit.cli import selftest as command
from nmtkit.utils.errors import UserError

RUNNER = CliRunner()
CHECKS = [Check("locks", "passed", "fine"), Check("demo", "failed", "they differ", {"loss": 2.0})]


def test_failed_check_is_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS))
    result = RUNNER.invoke(cli.app, ["selftest"])
    assert result.exit_code == 1
    assert isinstance(result.exception, UserError)
    assert str(result.exception).startswith("demo: failed")
    for check in CHECKS:
        assert re.search(rf"{check.state} +│ {check.what} +│ {check.seen}", result.stdout)


def test_selftest_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS[:1]))
    result = RUNNER.invoke(cli.app, ["selftest", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [vars(CHECKS[0])]


@pytest.mark.parametrize("as_json", [False, True])
def test_gpu_results_are_appended_one_by_one(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs" / "selftest.jsonl"

    def lines() -> list[Any]:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]

    def gpu_checks(*_: object) -> Iterator[Check]:
        yield CHECKS[0]
        assert [line["what"] for line in lines()] == ["locks"]
        yield CHECKS[1]

    monkeypatch.setattr(selftest_gpu, "gpu_checks", gpu_checks)
    monkeypatch.chdir(tmp_path)
    result = RUNNER.invoke(cli.app, ["selftest", "--gpu", *(["--json"] if as_json else [])])
    assert result.exit_code == 1
    assert str(result.exception).startswith("demo: failed")
    if as_json:
        assert [json.loads(line) for line in result.stdout.split("\n")[:-1]] == lines()
    else:
        assert "passed: locks: fine" in result.stdout
    assert [line["figures"] for line in lines()] == [{}, {"loss": 2.0}]
    other = tmp_path / "other.jsonl"
    RUNNER.invoke(cli.app, ["selftest", "--gpu", "--output", str(other)])
    assert other.is_file()
    assert len(lines()) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--seconds=5"], "--gpu"),
        (["--output=x"], "--gpu"),
        (["--dtype=float16"], "--gpu"),
        (["--gpu", "--table=csv"], "--table"),
        (["--gpu", "--output=missing/x"], "--output"),
        (["--gpu", "--output=."], "--output"),
    ],
)
def test_selftest_refuses_options(
    options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = RUNNER.invoke(cli.app, ["selftest", *options])
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_selftest_as_a_user_runs_it(tmp_path: Path) -> None:
    checks = json.loads(done(nmtkit(tmp_path, "selftest", "--json")).out)
    assert {check["state"] for check in checks} <= {"passed", "noted", "skipped"}
    assert checks[-1]["what"] == "demo"
