"""The help of all commands in the form of COMMANDS.md, which `make commands` writes."""

from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from nmtkit.cli import app as cli

WIDTH = 80


def commands(name: str = "nmtkit", command: Any = None) -> Iterator[tuple[str, Any]]:
    """A command and all commands below it: the words to type, and the object of typer."""
    command = command or get_command(cli.app)
    yield name, command
    if isinstance(command, TyperGroup):
        context = command.make_context(name, [], resilient_parsing=True)
        for word in command.list_commands(context):
            yield from commands(f"{name} {word}", command.get_command(context, word))


def help_text(name: str, command: Any) -> str:
    """The output of `NAME --help` on a terminal of 80 columns."""
    settings = {**command.context_settings, "terminal_width": WIDTH}
    text: str = command.get_help(command.context_class(command, info_name=name, **settings))
    return text


def document() -> str:
    """The content of COMMANDS.md."""
    parts = [
        "# Commands\n\nThe output of `--help` for every command; `make commands` writes this file."
    ]
    parts += [f"## {name}\n\n```\n{help_text(name, command)}\n```" for name, command in commands()]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(document(), end="")
