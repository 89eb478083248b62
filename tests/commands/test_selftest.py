"""nmtkit selftest: its options, what it prints, and its exit code."""

import json
from pathlib import Path

import pytest
from system.command import done, nmtkit, sentence
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.commands import selftest as command
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.reporting.facts import Check
from nmtkit.selftest import environment
from nmtkit.selftest.chaos import Round

RUNNER = CliRunner()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--src", "a.en"], "--src and --tgt belong together"),
        (["--log", "log"], "--log is for --chaos N"),
        (["--src", "a.en", "--tgt", "b.en"], "do not tell the languages"),
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
    monkeypatch.setattr(command, "selftest", lambda *_: iter(CHECKS))
    result = RUNNER.invoke(cli.app, ["selftest"])
    assert result.exit_code == 1
    assert str(result.exception) == "tokens, en failed, as said above"
    assert result.stdout == (
        "held     locks            fine\nfailed   tokens, en       line 3 differs\n"
    )
    monkeypatch.setattr(command, "selftest", lambda *_: iter(CHECKS[:1]))
    result = RUNNER.invoke(cli.app, ["selftest", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [{"what": "locks", "state": "held", "seen": "fine"}]


@pytest.mark.parametrize("problem", [None, "other bytes in a"])
def test_kills_are_summed_up(monkeypatch: pytest.MonkeyPatch, problem: str | None) -> None:
    rounds = [
        Round("train", ["before operation 3", "before operation 4"], None, 1.0),
        Round("score", ["before operation 5"], problem, 2.0),
    ]
    monkeypatch.setattr("nmtkit.selftest.chaos.chaos", lambda *_, **__: iter(rounds))
    check = command._chaos(Path(), 3, None, 2)
    assert check.state == ("failed" if problem else "held")
    assert check.seen.startswith("3 kills in 2 rounds, 3 s (score 1, train 2)")
    if problem:
        assert check.seen.endswith("the first score killed before operation 5: other bytes in a")


def test_a_text_of_ones_own_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "examine", lambda _: iter([]))
    monkeypatch.setattr(command, "_chain", lambda _: iter([]))
    for lang in ("fr", "en"):
        (tmp_path / f"mine.{lang}").write_text("l'eau est là.\n" * 3, encoding="utf-8")
    paths = tmp_path / "mine.fr", tmp_path / "mine.en"
    checks = list(command.selftest(Machine(tmp_path), *paths))
    assert [each.state for each in checks] == ["held"] * 5
    assert checks[0].what == "tokens, fr"
    assert checks[0].seen.startswith("3 lines")


def test_text_whose_names_tell_no_language_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="b-text do not tell the languages; rename"):
        next(command.selftest(Machine(tmp_path), Path("a-text"), Path("b-text")))


@pytest.mark.slow
def test_all_of_it_as_a_user_runs_it(tmp_path: Path) -> None:
    ended = done(nmtkit(tmp_path, "selftest", "--json", "--chaos", "6", "--log", "log"))
    checks = json.loads(ended.out)
    assert {each["state"] for each in checks} <= {"held", "noted", "skipped"}
    assert [each["what"] for each in checks][-3:] == ["demo", "rerun", "kills"]
    (tmp_path / "log").write_text("no log\n", encoding="utf-8")
    refused = nmtkit(tmp_path, "selftest", "--chaos", "6", "--log", "log")
    assert "is not a log" in sentence(refused)
