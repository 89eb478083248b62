"""nmtkit selftest: its options, what it prints, and its exit code."""

import json
from pathlib import Path

import pytest
from system.command import done, nmtkit
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import selftest as command
from nmtkit.machine import Machine
from nmtkit.selftest import environment
from nmtkit.selftest.environment import Check

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--src", "a.en"], "--src and --tgt belong together"),
        (["--src", "a.en", "--tgt", "b.en"], "--src a.en does not exist"),
        (["--src", __file__, "--tgt", __file__], "do not tell the languages"),
    ],
)
def test_options_that_need_another_are_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.setattr(environment, "examine", lambda _: iter([]))
    result = RUNNER.invoke(cli.app, ["selftest", *arguments])
    assert result.exit_code != 0
    assert said in str(result.exception)


CHECKS = [Check("locks", "held", "fine"), Check("tokens, en", "failed", "line 3 differs")]


def test_a_failure_is_printed_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS))
    result = RUNNER.invoke(cli.app, ["selftest"])
    assert result.exit_code == 1
    assert str(result.exception) == "tokens, en failed, as said above"
    assert result.stdout == (
        "held     locks            fine\nfailed   tokens, en       line 3 differs\n"
    )
    monkeypatch.setattr(command, "checks", lambda *_: iter(CHECKS[:1]))
    result = RUNNER.invoke(cli.app, ["selftest", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [{"what": "locks", "state": "held", "seen": "fine"}]


def test_losses_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for off, state in ((0.0, "held"), (0.01, "failed")):
        monkeypatch.setattr(command, "LOSSES", {1: command.LOSSES[1] + off})
        assert command._demo(tmp_path).state == state


def test_a_text_of_ones_own_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "examine", lambda _: iter([]))
    monkeypatch.setattr(command, "_demo", lambda _: Check("demo", "held", "fine"))
    for lang in ("fr", "en"):
        (tmp_path / f"mine.{lang}").write_text("l'eau est là.\n" * 3, encoding="utf-8")
    paths = tmp_path / "mine.fr", tmp_path / "mine.en"
    checks = list(command.checks(Machine(tmp_path), *paths))
    assert [each.what for each in checks] == ["BPE learned", "demo"]
    assert all(each.state == "held" for each in checks)


@pytest.mark.slow
def test_all_of_it_as_a_user_runs_it(tmp_path: Path) -> None:
    checks = json.loads(done(nmtkit(tmp_path, "selftest", "--json")).out)
    assert {each["state"] for each in checks} <= {"held", "noted", "skipped"}
    assert checks[-1]["what"] == "demo"
