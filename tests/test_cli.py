"""What the command line makes of its arguments."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nmtkit
from nmtkit import cli
from nmtkit.__main__ import main
from nmtkit.cli.train import train as train_command
from nmtkit.config.settings import PREPARE_OPTIONS, Settings
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
    """What `nmtkit train` is asked to train, instead of training it."""
    chains: list[Pipeline] = []

    def run(pipeline: Pipeline) -> Artifact:
        chains.append(pipeline)
        manifest = Manifest(format=1, files={}, kind="train", made_by={}, sha256="")
        return Artifact(Path("path"), manifest)

    monkeypatch.setattr(train, "run", run)
    monkeypatch.setattr(Settings, "check", lambda _: None)  # this one may lack what is asked for
    return chains


def test_train_options_tell_another_process_the_whole_machine(trained: list[Pipeline]) -> None:
    taken = set(inspect.signature(train_command).parameters) & {
        each.name for each in fields(Settings)
    }
    assert taken == {each.name for each in fields(Settings)} - set(PREPARE_OPTIONS)
    cli.app(
        ["train", *MACHINE.options(exclude=PREPARE_OPTIONS), "--", "demo"], standalone_mode=False
    )
    told = vars(trained[0].settings)
    for name in taken:
        default = Settings.__dataclass_fields__[name].default
        assert told[name] == vars(MACHINE)[name] != default


def test_a_machine_of_defaults_takes_its_runs_dir_alone(trained: list[Pipeline]) -> None:
    assert Settings(Path("runs")).options() == ["--runs-dir=runs"]
    cli.app(["train", "demo"], standalone_mode=False)
    assert trained[0].settings == Settings(Path("runs"))


@pytest.mark.parametrize(
    ("typed", "said"),
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
def test_what_the_machine_lacks_is_said_before_anything_is_read(
    typed: str, said: str, tmp_path: Path
) -> None:
    """Also before the recipe, which would name a file to download."""
    arguments = [*typed.split(), "wmt14-en-de-base", f"--runs-dir={tmp_path / 'runs'}"]
    with pytest.raises(UserError, match=said):
        cli.app(arguments, standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["tra"], ["train", "translate"]),
        (["run", "multi"], ["multi30k-en-de"]),
        (["run", "./mi"], []),  # where the shell itself completes paths
        (["translate", "--bu"], ["--bundle"]),
    ],
)
def test_a_shell_completes_commands_options_and_recipes(
    typed: list[str], completed: list[str]
) -> None:
    asked = {
        "_NMTKIT_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["nmtkit", *typed]),
        "COMP_CWORD": str(len(typed)),
    }
    ended = CliRunner(env=asked).invoke(cli.app, prog_name="nmtkit")
    assert ended.output.split() == completed


def test_ctrl_c_before_a_command_begins_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "nmtkit.cli":
                raise KeyboardInterrupt

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as while_typer_reads_the_commands:
        while_typer_reads_the_commands.setattr(cli, "main", interrupted)
        with pytest.raises(SystemExit, match="130"):
            main()
    monkeypatch.delitem(sys.modules, "nmtkit.cli")
    monkeypatch.delattr(nmtkit, "cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("translate demo --n-best 2", "--n-best"),
        ("translate demo --beam 1", "--beam"),
        ("translate demo --length-penalty 0", "--length-penalty"),
        ("translate demo --alignment", "--alignment"),
        ("translate demo --bundle b", "--bundle"),
        ("translate --bundle b --set decoding.beam_size=1", "--set"),
        ("translate --bundle b --runs-dir r", "--runs-dir"),
        ("translate --bundle b --recipe demo", "--recipe"),
        ("translate demo --recipe demo", "--recipe"),
        ("translate --bundle b --force", "--force"),
        ("translate --bundle b --mirror .", "--mirror"),
        ("translate --bundle b --format text --n-best 2", "--format"),
        ("translate --bundle b --format pharaoh --n-best 1", "--format"),
        ("translate --bundle b --alignment", "--format"),
        ("translate --bundle b --n-best 2 --alignment", "--format"),
        ("translate --bundle b -o out.gz", "--output out.gz"),
        ("translate --bundle b -o .", "--output"),
        ("translate --bundle b -o none/b", "--output"),
        ("average a b", "--output"),
        ("average a b -o c --set averaging.n_checkpoints=1", "--set"),
        ("average a b -o c --force", "--force"),
        ("force a b --bundle c --format moses", "--format"),
        ("force a b --bundle c --alignment", "--format"),
    ],
)
def test_options_that_do_not_go_together_are_refused_by_name(typed: str, named: str) -> None:
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
def test_a_value_that_is_refused_is_told_by_its_option_and_not_by_what_is_behind_it(
    typed: str,
) -> None:
    ended = CliRunner().invoke(cli.app, typed.split())
    assert ended.exit_code == 2
    (said,) = (line for line in ended.output.split("\n") if line.startswith("Error: "))
    assert f"'{typed.split()[-2]}" in said
    assert not re.search(r"\[\w+\]|\w_\w|[\^$\\]", said)  # a section, a key, an expression


@pytest.mark.parametrize(
    ("typed", "place", "why"),
    [
        ("status demo --runs-dir", "file", "is not a folder"),
        ("run demo --mirror", "file", "is not a folder"),
        ("inspect demo --html", "", "is a folder; name a file"),
        ("inspect demo --html", "none/page", "would be in"),
        ("attention Hello. --bundle any --svg", "none/page", "would be in"),
    ],
)
def test_a_place_of_the_wrong_kind_is_refused_first(
    typed: str, place: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    arguments, path = typed.split(), tmp_path / place
    with pytest.raises(UserError, match=f"^{arguments[-1]} {path} {why}"):
        cli.app([*arguments, str(path)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("descriptor", range(3))
def test_no_file_is_opened_in_the_place_of_a_closed_stream(descriptor: int) -> None:
    begin = "import os, sys; from nmtkit.__main__ import main; sys.argv[1:] = ['--version']"
    code = f"{begin}\ntry: main()\nexcept SystemExit: os.fstat({descriptor})"
    closed = partial(os.close, descriptor)
    ended = subprocess.run([sys.executable, "-c", code], preexec_fn=closed, check=False)
    assert ended.returncode == 0
