"""The commands in groups, in the order of a day's work.

The module of a command is imported when the command is typed, so that `nmtkit --help` and
`nmtkit status` do not wait for what other commands need.
"""

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nmtkit import __version__

Groups = Mapping[str, Mapping[str, str]]

# The commands with one line of help each. Listing them here spares `nmtkit --help` their imports;
# the first line of a command's docstring is the same (a test compares them).
GROUPS: Mapping[str, Groups] = {
    "nmtkit": {
        "Getting started": {
            "run": "Run all stages that are not finished, and show the results.",
            "new": "Create a recipe for your own parallel text.",
            "recipes": "List the recipes and studies that come with nmtkit.",
            "plan": "Show what would run, and estimate its time and disk space.",
            "status": "Show the state of each stage, and the next command.",
        },
        "Stages": {
            "prepare": "Download, tokenize, clean and split into subwords.",
            "train": "Train on the prepared corpus, or resume an interrupted run.",
            "average": "Average checkpoints into a bundle, ready to translate.",
            "translate": "Translate the test sets of a recipe, or any text.",
            "score": "Score the translations of a recipe, or text files.",
        },
        "Models": {
            "force": "Compute log-probabilities of existing translations.",
            "export": "Export a bundle for other libraries, or a corpus for other toolkits.",
            "import": "Convert a fairseq model to a bundle.",
            "attention": "Draw the attention of a bundle, as in Figures 3 to 5.",
        },
        "Results": {
            "report": "Write a report of all runs: a page, tables and charts.",
            "compare": "Compare systems: scores, significance, differences.",
            "study": "Run variants of a recipe, such as Table 3, as one table.",
            "runs": "List all artifacts: run, stage, size, age, score.",
            "inspect": "Show lengths, vocabulary and samples of a corpus.",
        },
        "Maintenance": {
            "verify": "Verify the checksums of an artifact and all its inputs.",
            "gc": "Delete the artifacts that no recipe needs, after asking.",
            "selftest": "Check this machine and the first steps of training.",
            "bench": "Measure the speed of training and translation.",
            "corpora": "List the public corpora that a recipe can name.",
        },
    },
    "bench": {
        "Commands": {
            "train": "Measure training: target tokens/s, MFU, memory.",
            "translate": "Measure translation: sentences/s, tokens/s, memory.",
        },
    },
}
SETTINGS: Mapping[str, Any] = {
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 80},
    "rich_markup_mode": None,
}

QUIET = ("-q", "--quiet")
QUIET_HELP = "Print errors and results only, no progress."
RANGE = re.compile(r"  \[[\d.<=]*x[\d.<>=]*\]|; [\d.<=]*x[\d.<>=]*(?=\])")  # that a number is in


def _set_quiet(is_quiet: bool) -> None:
    """Print no progress, if `-q` was passed before the command or after it."""
    if is_quiet:
        from nmtkit.utils import progress  # imports rich, which help does not need

        progress.console.quiet = True


class _Command(TyperCommand):
    """A command that also accepts `-q`, and whose help names its arguments by their metavars."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Not a parameter: all commands have it, and none uses its value.
        end = args.index("--") if "--" in args else len(args)
        others = [arg for arg in args[:end] if arg not in QUIET]
        if len(others) < end:
            _set_quiet(True)
        return super().parse_args(ctx, others + args[end:])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return ["[OPTIONS]", *(name for name, _ in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        options = self.get_params(ctx)[len(self._arguments()) :]
        records = [record for each in options if (record := each.get_help_record(ctx))]
        shown = [(names, RANGE.sub("", text)) for names, text in records]
        shown.insert(-1, (", ".join(QUIET), QUIET_HELP))  # before --help
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
        # The docstring ends with an example, which the help shows below the options.
        _, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
        example = getattr(function, "example", example)
        one.command(cmd_name, cls=_Command, help=text, epilog=f"Example: {example}")(function)
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
    _quiet: Annotated[
        bool, typer.Option("--quiet", "-q", callback=_set_quiet, help=QUIET_HELP)
    ] = False,
) -> None:
    """The experiments of "Attention Is All You Need", from raw text to its tables."""
