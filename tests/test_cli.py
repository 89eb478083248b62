"""What the command line makes of its arguments."""

import gc
import inspect
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

import nmtkit
from nmtkit import cli, old_cli
from nmtkit.__main__ import main
from nmtkit.cli.train import train as train_command
from nmtkit.errors import UserError
from nmtkit.machine import OF_PREPARE, Machine, Precision
from nmtkit.stages import train
from nmtkit.stages.chain import Chain
from nmtkit.store import Artifact, Manifest

# No field has its default value.
MACHINE = Machine(
    runs_dir=Path("-my runs"),
    mirror=Path("mirror"),
    device="cuda:1",
    max_tokens=77,
    workers=5,
    processes=3,
    dtype=Precision.BFLOAT16,
    deterministic=True,
    tensorboard=Path("-board"),
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Chain]:
    """What `nmtkit train` is asked to train, instead of training it."""
    chains: list[Chain] = []

    def run(chain: Chain) -> Artifact:
        chains.append(chain)
        manifest = Manifest(format=1, files={}, kind="train", made_by={}, sha256="")
        return Artifact(Path("path"), manifest)

    monkeypatch.setattr(train, "run", run)
    monkeypatch.setattr(Machine, "check", lambda _: None)  # this one may lack what is asked for
    return chains


def test_train_options_tell_another_process_the_whole_machine(trained: list[Chain]) -> None:
    taken = set(inspect.signature(train_command).parameters) & {
        each.name for each in fields(Machine)
    }
    assert taken == {each.name for each in fields(Machine)} - set(OF_PREPARE)
    cli.app(["train", *MACHINE.options(besides=OF_PREPARE), "--", "demo"], standalone_mode=False)
    told = vars(trained[0].machine)
    for name in taken:
        default = Machine.__dataclass_fields__[name].default
        assert told[name] == vars(MACHINE)[name] != default


def test_a_machine_of_defaults_takes_its_runs_dir_alone(trained: list[Chain]) -> None:
    assert Machine(Path("runs")).options() == ["--runs-dir=runs"]
    cli.app(["train", "demo"], standalone_mode=False)
    assert trained[0].machine == Machine(Path("runs"))


REFUSED = {"--device=cuda:99": "not available", "--processes=9999": "more than the"}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["run"], [*REFUSED, "--tensorboard={file}"]),
        (["train"], [*REFUSED, "--tensorboard={file}"]),
        (["translate"], ["--device=cuda:99"]),
        (["plan"], ["--device=cuda:99"]),
        (["bench", "train"], ["--device=cuda:99"]),
    ],
)
def test_what_the_machine_lacks_is_said_before_anything_is_read(
    command: list[str], options: list[str], tmp_path: Path
) -> None:
    """Also before the recipe, which would name a file to download."""
    (tmp_path / "file").touch()
    for option in options:
        given = option.format(file=tmp_path / "file")
        arguments = [*command, "wmt14-en-de-base", f"--runs-dir={tmp_path / 'runs'}", given]
        with pytest.raises(UserError, match=REFUSED.get(option, "^--tensorboard")):
            cli.app(arguments, standalone_mode=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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
    ("options", "says"),
    [
        (["demo", "--n-best", "2"], "--n-best is an option of --bundle"),
        (["demo", "--beam", "0"], "--beam is an option of --bundle"),
        (["demo", "--length-penalty", "0"], "--length-penalty is an option of --bundle"),
        (["demo", "--alignment"], "--alignment is an option of --bundle"),
        (["--bundle", "b", "--set", "decoding.beam_size=1"], "use --beam and --length-penalty"),
        (["--bundle", "b", "--interactive", "-o", "out"], "--interactive takes no --input"),
        (["--bundle", "b", "--format", "text", "--n-best", "2"], "use moses, json or fairseq"),
        (["--bundle", "b", "--alignment"], "--format text has no alignment"),
        (["--bundle", "b", "--n-best", "2", "--alignment"], "--format moses has no alignment"),
    ],
)
def test_options_of_translate_that_do_not_go_together_are_refused(
    options: list[str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        cli.app(["translate", *options], standalone_mode=False)


def test_garbage_is_collected_again_after_loading() -> None:
    with old_cli._no_garbage():
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    "arguments",
    [
        ["attention", "--bundle", "b", "-i", "text", "--line", f"{2**63}"],
        ["bench", "translate", "--bundle", "b", "-i", "text", "--lines", f"{2**63}"],
        ["prepare", "demo", "--workers", "1025"],
        ["bench", "train", "demo", "--seconds", "inf"],
    ],
)
def test_number_that_could_only_fail_or_hang_is_refused(arguments: list[str]) -> None:
    ended = CliRunner().invoke(cli.app, arguments)
    assert ended.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}'" in ended.output


@pytest.mark.parametrize(
    "arguments", [["status", "demo", "--runs-dir"], ["run", "demo", "--mirror"]]
)
def test_file_in_the_place_of_a_folder_is_refused(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ended = CliRunner().invoke(cli.app, [*arguments, str(file)])
    assert isinstance(ended.exception, UserError)
    assert str(ended.exception) == f"{arguments[-1]} {file} is not a folder; name another one"


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "demo", "--html"],
        ["attention", "Hello.", "--bundle", "any", "--html"],
        ["attention", "Hello.", "--bundle", "any", "--svg"],
        ["bench", "layers", "--plot"],
    ],
)
def test_page_that_cannot_be_written_is_refused_first(arguments: list[str], tmp_path: Path) -> None:
    in_none = tmp_path / "none" / "page"
    for path, why in [
        (tmp_path, "is a folder; name a file"),
        (in_none, f"would be in {in_none.parent}, which is not a folder; name a file in a folder"),
    ]:
        ended = CliRunner().invoke(cli.app, [*arguments, str(path)])
        assert isinstance(ended.exception, UserError)
        assert str(ended.exception).startswith(f"{arguments[-1]} {path} {why}")
    assert list(tmp_path.iterdir()) == []
