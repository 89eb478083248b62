"""What every command says of itself, as COMMANDS.md holds it; `make commands` writes it."""

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from nmtkit import cli

WIDTH = 80


def commands(name: str = "nmtkit", command: Any = None) -> Iterator[tuple[str, Any]]:
    """Each command below one, as it is typed, and the object that runs it."""
    command = command or get_command(cli.app)
    yield name, command
    if isinstance(command, TyperGroup):
        context = command.make_context(name, [], resilient_parsing=True)
        for each in command.list_commands(context):
            yield from commands(f"{name} {each}", command.get_command(context, each))


def help_of(name: str, command: Any) -> str:
    """What `NAME --help` prints on a terminal of 80 columns."""
    settings = {**command.context_settings, "terminal_width": WIDTH}
    text: str = command.get_help(command.context_class(command, info_name=name, **settings))
    return text


def document() -> str:
    """The content of COMMANDS.md."""
    parts = ["# Commands\n\nWhat `--help` says of each; `make commands` writes this file."]
    parts += [f"## {name}\n\n```\n{help_of(name, command)}\n```" for name, command in commands()]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(document(), end="")
