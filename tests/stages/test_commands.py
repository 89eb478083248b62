"""Command lines on a recipe, as messages print them and as child processes get them."""

import shlex
from pathlib import Path

import pytest

from nmtkit.config.settings import RUNS
from nmtkit.stages.commands import Commands
from nmtkit.utils import progress

OVERRIDES = ["training.max_steps=5", 'test.sets=["demo-dev"]']


def test_default_folder_is_left_out() -> None:
    commands = Commands("demo", [], RUNS)
    assert commands.stage("train") == "nmtkit train demo"
    assert commands.translate() == "nmtkit translate --recipe demo"
    assert commands.report() == "nmtkit report"


def test_shell_reads_arguments_as_typed(tmp_path: Path) -> None:
    folder = tmp_path / "my runs"
    commands = Commands("./my recipe.toml", OVERRIDES, folder)
    options = [f"--set={override}" for override in OVERRIDES]
    selection = ["./my recipe.toml", *options, f"--runs-dir={folder}"]
    assert shlex.split(commands.stage("train")) == ["nmtkit", "train", *selection]
    assert shlex.split(commands.translate()) == ["nmtkit", "translate", "--recipe", *selection]
    assert shlex.split(commands.report()) == ["nmtkit", "report", f"--runs-dir={folder}"]


@pytest.mark.parametrize("is_quiet", [False, True])
def test_child_is_as_quiet(is_quiet: bool) -> None:
    progress.console.quiet = is_quiet
    arguments = Commands("-x", OVERRIDES, RUNS).child_arguments(["run", "--workers=2"])
    options = [f"--set={override}" for override in OVERRIDES]
    expected = ["run", "--workers=2", *options, "--", "-x"]
    assert arguments == (["--quiet", *expected] if is_quiet else expected)
