"""The commands in groups, in the order of a day's work.

The module of a command is imported when the command is typed, so that `nmtkit --help` and
`nmtkit status` do not wait for what other commands need.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nmtkit import __version__
from nmtkit.tables import read_tables

Groups = Mapping[str, Mapping[str, str]]

GROUPS: Mapping[str, Groups] = read_tables(__file__, "groups.toml")
SETTINGS: Mapping[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 80},
    "rich_markup_mode": None,
}

RANGE = re.compile(r"  \[[\d.<=]*x[\d.<>=]*\]|; [\d.<=]*x[\d.<>=]*(?=\])")  # that a number is in


class _Command(TyperCommand):
    """A command whose help names its arguments by their metavars alone."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return ["[OPTIONS]", *(name for name, _ in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        options = self.get_params(ctx)[len(self._arguments()) :]
        records = [record for each in options if (record := each.get_help_record(ctx))]
        shown = [(names, RANGE.sub("", text)) for names, text in records]
        for title, rows in (("Arguments", self._arguments()), ("Options", shown)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self) -> list[tuple[str, str]]:
        arguments = [each for each in self.params if each.param_type_name == "argument"]
        return [(str(each.metavar), each.help) for each in arguments]  # type: ignore[attr-defined]


class _Group(TyperGroup):
    def __init__(
        self, *, groups: Groups = GROUPS["nmtkit"], prefix: str = "", **given: Any
    ) -> None:
        super().__init__(**given)
        self.groups, self.prefix = groups, prefix  # of the names of modules
        self.commands: Any = {
            name: text for group in groups.values() for name, text in group.items()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if (text := self.commands.get(cmd_name)) is None:
            return None
        if cmd_name == "bench":
            example = "Example: nmtkit bench train demo"
            given = {"no_args_is_help": True, "epilog": example, **SETTINGS}
            return _Group(name="bench", groups=GROUPS["bench"], prefix="bench_", help=text, **given)
        name = "import_model" if cmd_name == "import" else f"{self.prefix}{cmd_name}"
        function = getattr(import_module(f"nmtkit.cli.{name}"), name)
        one = typer.Typer(add_completion=False, **SETTINGS)
        example = f"Example: {function.example}"
        one.command(cmd_name, cls=_Command, help=text, epilog=example)(function)
        return typer.main.get_command(one)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        width = max(map(len, self.commands))
        for title, commands in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


app = typer.Typer(
    name="nmtkit", cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, **SETTINGS
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nmtkit {__version__}")
        raise typer.Exit


@app.callback(epilog="Example: nmtkit run demo")
def nmtkit(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print errors and results only, no progress.")
    ] = False,
) -> None:
    """The experiments of "Attention Is All You Need", from raw text to its tables."""
    if quiet:
        from nmtkit.utils import progress  # imports rich, which help does not need

        progress.console.quiet = True
