"""The arguments of the command line."""

import csv
import inspect
import io
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli.prepare import prepare as prepare_command
from nmtkit.cli.train import train as train_command
from nmtkit.config.settings import PREPARE_FIELDS, Settings
from nmtkit.sources.catalog import load_catalog
from nmtkit.stages import train
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.manifests import Manifest
from nmtkit.utils.errors import UserError

# No field has its default value.
MACHINE = Settings(
    runs_dir=Path("-my runs"),
    mirror=Path("mirror"),
    device="cuda:1",
    max_tokens=77,
    workers=5,
    processes=3,
    dtype="bfloat16",
    accelerate="compile",
    deterministic=True,
    tensorboard=Path("-board"),
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """The pipelines that `nmtkit train` would train, which are not trained."""
    pipelines: list[Pipeline] = []

    def run(pipeline: Pipeline) -> Artifact:
        pipelines.append(pipeline)
        manifest = Manifest(format=1, files={}, kind="train", made_by={}, sha256="")
        return Artifact(Path("path"), manifest)

    monkeypatch.setattr(train, "run", run)
    monkeypatch.setattr(Settings, "check", lambda _: None)  # this machine may lack the device
    return pipelines


def test_train_options_round_trip(trained: list[Pipeline]) -> None:
    setting_names = {field.name for field in fields(Settings)}
    options = set(inspect.signature(train_command).parameters) & setting_names
    assert options == setting_names - set(PREPARE_FIELDS) | {"runs_dir"}
    assert set(inspect.signature(prepare_command).parameters) & setting_names == set(PREPARE_FIELDS)
    cli.app(["train", *MACHINE.options("train"), "--", "demo"], standalone_mode=False)
    received = vars(trained[0].settings)
    for name in options:
        default = Settings.__dataclass_fields__[name].default
        assert vars(MACHINE)[name] != default, f"give {name} another value in MACHINE"
        assert received[name] == vars(MACHINE)[name], name


def test_default_options_are_runs_dir(trained: list[Pipeline]) -> None:
    assert Settings(Path("runs")).options() == ["--runs-dir=runs"]
    cli.app(["train", "demo"], standalone_mode=False)
    assert trained[0].settings == Settings(Path("runs"))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("run --device=cuda:99", "not available"),
        ("run --processes=9999", "is more than"),
        ("train --device=cuda:99", "not available"),
        ("train --processes=9999", "is more than"),
        ("translate --device=cuda:99", "not available"),
        ("plan --device=cuda:99", "not available"),
        ("bench train --device=cuda:99", "not available"),
    ],
)
def test_missing_device_is_reported_first(typed: str, message: str, tmp_path: Path) -> None:
    """Before the recipe is read, which names files to download."""
    arguments = [*typed.split(), "wmt14-en-de-base", f"--runs-dir={tmp_path / 'runs'}"]
    with pytest.raises(UserError, match=message):
        cli.app(arguments, standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["tra"], ["train", "translate"]),
        (["run", "multi"], ["multi30k-en-de"]),
        (["run", "./mi"], []),  # the shell itself completes paths
        (["translate", "--bu"], ["--bundle"]),
    ],
)
def test_shell_completion(typed: list[str], completed: list[str]) -> None:
    variables = {
        "_NMTKIT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["nmtkit", *typed]),
        "COMP_CWORD": str(len(typed)),
    }
    ended = CliRunner(env=variables).invoke(cli.app, prog_name="nmtkit")
    assert ended.output.split() == completed


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("translate --bundle b --format pharaoh --n-best 1", "--format"),
        ("translate --bundle b --n-best 2 --alignment", "--format"),
        ("translate --bundle b -o out.gz", "--output out.gz"),
        ("translate --bundle b -o .", "--output"),
        ("translate --bundle b -o none/b", "--output"),
        ("force a b --bundle c --format moses", "--format"),
        ("force a b --bundle c --alignment", "--format"),
    ],
)
def test_conflicting_options_are_named(typed: str, named: str) -> None:
    with pytest.raises(UserError, match=rf"(^|\s){named}\b"):
        cli.app(typed.split(), standalone_mode=False)


@pytest.mark.parametrize(
    "typed",
    [
        "translate --bundle b --beam 0",
        "translate --bundle b --beam 1025",
        "translate --bundle b --n-best 0",
        "translate --bundle b --length-penalty nan",
        "translate --bundle b --length-penalty -1",
        "translate --bundle b --format xml",
        "run demo --max-tokens 0",
        "train demo --processes 0",
        "prepare demo --workers 1025",
        "export b e --format onnx",
        "score a b --lang de --metric f1",
        "new mine --vocabulary words",
        "bench train demo --seconds inf",
    ],
)
def test_invalid_value_names_its_option(
    typed: str,
) -> None:
    ended = CliRunner().invoke(cli.app, typed.split())
    assert ended.exit_code == 2
    (message,) = (line for line in ended.output.split("\n") if line.startswith("Error: "))
    assert f"'{typed.split()[-2]}" in message
    assert "Value error" not in message  # pydantic's prefix
    # It names no section of a recipe, no key and no regular expression.
    assert not re.search(r"\[\w+\]|\w_\w|[\^$\\]", message)


@pytest.mark.parametrize(
    ("typed", "place", "why"),
    [
        ("status demo --runs-dir", "file", "is not a folder"),
        ("run demo --mirror", "file", "is not a folder"),
        ("inspect demo --html", "", "is a folder"),
        ("inspect demo --html", "none/page", "is not a folder"),
        ("attention Hello. --bundle any --svg", "none/page", "is not a folder"),
    ],
)
def test_invalid_output_is_refused_first(typed: str, place: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = typed.split()
    path = tmp_path / place
    with pytest.raises(UserError, match=f"^{arguments[-1]} {path}.* {why}"):
        cli.app([*arguments, str(path)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("descriptor", range(3))
def test_closed_streams_stay_unused(descriptor: int) -> None:
    begin = "import os, sys; from nmtkit.__main__ import main; sys.argv[1:] = ['--version']"
    code = f"{begin}\ntry: main()\nexcept SystemExit: os.fstat({descriptor})"
    closed = partial(os.close, descriptor)
    ended = subprocess.run([sys.executable, "-c", code], preexec_fn=closed, check=False)
    assert ended.returncode == 0


def test_corpora_are_one_table_in_csv() -> None:
    printed = CliRunner().invoke(cli.app, ["corpora", "--table=csv"], catch_exceptions=False).stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["corpus"] for row in rows] == list(load_catalog().corpora)
    assert len({row["licence"] for row in rows}) > 1
