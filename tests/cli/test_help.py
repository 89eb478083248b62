"""The commands, their options and their help."""

import inspect
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command_help import WIDTH, commands, document, help_text
from rich.cells import cell_len
from typer.core import TyperGroup
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.utils import progress

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = dict(commands())
TYPER_OPTIONS = {"--help", "--install-completion", "--show-completion"}
OPTIONS = """
    --version --quiet --json --table --html --svg --output --runs-dir --mirror --device
    --workers --max-tokens --processes --dtype --accelerate --deterministic --tensorboard --set
    --force --bundle --input --beam --length-penalty --n-best --format --alignment --engine
    --no-split --ref --src --tgt --lang --test-set --lowercase --metric --tsv --csv --jsonl --tmx
    --opus-zip --dataset --src-lang --tgt-lang --dev --test --vocabulary --codes --view
    --rows --keep --drafts --yes --seconds --gpu --results --push --recipe --worst --reverse --from
    --no-trial --run --plain --delimiter --quoted --published --penalty-formula --subwords --all
    --host --port --max-characters --sample --top-k --temperature --seed --tokenizer --corpus
    --dev-set
"""


def module_of(name: str) -> str:
    """The module of a command; its function has the same name."""
    own = "_".join(name.split(" ")[1:])
    return f"nmtkit.cli.{'import_model' if own == 'import' else own}"


GROUPS = [name for name, command in COMMANDS.items() if isinstance(command, TyperGroup)]
NAMES = [name for name in COMMANDS if name not in GROUPS]


def test_commands_md_is_up_to_date() -> None:
    committed = (ROOT / "COMMANDS.md").read_text(encoding="utf-8")
    assert committed == document(), "COMMANDS.md is stale; run `make commands`"


@pytest.mark.parametrize("name", [*NAMES, *GROUPS])
def test_help_fits_terminal(name: str) -> None:
    text = help_text(name, COMMANDS[name])
    assert max(map(cell_len, text.split("\n"))) <= WIDTH
    for unwanted in ("INTEGER", "FLOAT", r"<\w+", r"x[<>]=", "9223", r"\{", r"\|"):
        assert not re.search(unwanted, text), unwanted


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_valid_example(name: str) -> None:
    command = COMMANDS[name]
    (example,) = re.findall(r"^ +Example: (.*)$", help_text(name, command), re.MULTILINE)
    assert f"{example} ".startswith(f"{name} ")
    command.make_context(name, shlex.split(example)[len(name.split(" ")) :])


def options_of(name: str) -> Iterator[tuple[str, Any]]:
    """The long options of a command, and their declarations."""
    module = import_module(module_of(name))
    function = getattr(module, module.__name__.rsplit(".", maxsplit=1)[-1])
    parameters = inspect.signature(function).parameters
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "option" and not TYPER_OPTIONS & {*parameter.opts}:
            (long,) = (option for option in parameter.opts if option.startswith("--"))
            (declaration,) = parameters[parameter.name].annotation.__metadata__
            yield long, declaration


def test_options_are_declared_once() -> None:
    declarations = defaultdict(set)
    for name in NAMES:
        for option, declaration in options_of(name):
            own = ["help", "metavar"]
            if option == "--output":  # a folder for `report`
                own.append("parser")
            shared = {key: value for key, value in vars(declaration).items() if key not in own}
            declarations[option].add(str(shared))
    assert {*declarations, "--version", "--quiet"} == {*OPTIONS.split()}
    assert [option for option, found in declarations.items() if len(found) > 1] == []


def test_help_does_not_import_torch() -> None:
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    subprocess.run([sys.executable, "-c", program, *map(module_of, NAMES)], check=True)


@pytest.mark.parametrize("words", ["-q bench train", "bench -q train", "bench train --quiet"])
def test_quiet_at_all_levels(words: str) -> None:
    assert not progress.console.quiet
    assert CliRunner().invoke(cli.app, [*words.split(), "--help"]).exit_code == 0
    assert progress.console.quiet
