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

Groups = Mapping[str, Mapping[str, str]]

GROUPS: Groups = {
    "Start": {
        "run": "Run all stages that are not done yet, and show the results.",
        "new": "Write a recipe for a text of your own.",
        "recipes": "List the recipes and studies that come with nmtkit.",
        "plan": "Show what would run, and what it costs on this machine.",
        "status": "Show what is done, what is running, and what comes next.",
    },
    "Stages": {
        "prepare": "Download, tokenize, clean, split into subwords, write ids.",
        "train": "Train on the prepared corpus, or resume a stopped run.",
        "average": "Average the last checkpoints, or any checkpoints, into a bundle.",
        "translate": "Translate the test sets, or any text.",
        "score": "Score a recipe's translations, or files of plain text.",
    },
    "Use": {
        "force": "Rate given translations: log-probability and perplexity.",
        "export": "Write a model for CTranslate2 or Hugging Face.",
        "import": "Make a bundle of a model that fairseq trained.",
        "attention": "Draw what a bundle attends to, as the paper's Figures 3 to 5.",
    },
    "Results": {
        "report": "Write a report of all runs: a page, tables and charts.",
        "compare": "Compare systems: BLEU, significance, largest differences.",
        "study": "Run variants of a recipe, such as Table 3, and show their table.",
        "runs": "List all artifacts: run, stage, size, age, score.",
        "inspect": "Show lengths, vocabulary and samples of a prepared corpus.",
    },
    "Care": {
        "verify": "Check that a result and all it rests on are as published.",
        "gc": "Free the artifacts that no recipe needs, after asking.",
        "selftest": "Check this machine and the demo's first steps.",
        "bench": "Measure the speed of this machine.",
        "corpora": "List the public corpora that a recipe can name.",
    },
}
OF_BENCH: Groups = {
    "Commands": {
        "train": "Measure training: target tokens/s, MFU, memory.",
        "translate": "Measure translation: sentences/s, tokens/s, memory.",
    }
}
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
    def __init__(self, *, groups: Groups = GROUPS, prefix: str = "", **given: Any) -> None:
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
            return _Group(name="bench", groups=OF_BENCH, prefix="bench_", help=text, **given)
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
        from nmtkit import progress  # imports rich, which help does not need

        progress.console.quiet = True
