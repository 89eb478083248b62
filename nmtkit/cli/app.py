"""The list of commands, in groups. `main` runs one, and reports how it ended.

The module of a command is imported when the command is typed: `nmtkit --help` and
`nmtkit status` do not wait for what other commands need.
"""

import errno
import inspect
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from nmtkit import __version__
from nmtkit.cli.hints import argument_hint, option_hint
from nmtkit.utils.errors import (
    AlreadyReported,
    RestartNeeded,
    Stopped,
    UserError,
    is_out_of_memory,
)
from nmtkit.utils.interrupts import EXIT_CODE, exit_interrupted
from nmtkit.utils.processes import NO_CUDA_GRAPHS, exit_with_agent
from nmtkit.utils.streams import STANDARD_OUTPUT
from nmtkit.utils.text import visible

Groups = Mapping[str, Mapping[str, str]]

# The commands with one line of help each. Listing them here spares `nmtkit --help` their imports;
# the first line of a command's docstring is the same (a test compares them).
GROUPS: Mapping[str, Groups] = {
    "nmtkit": {
        "Getting started": {
            "run": "Run all unfinished stages, and show the results.",
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
            "serve": "Translate in a browser, or for clients of LibreTranslate.",
            "force": "Compute log-probabilities of existing translations.",
            "export": "Export a model for other libraries, or a corpus for other toolkits.",
            "import": "Convert a MarianMT (OPUS-MT) or fairseq model to a bundle.",
            "attention": "Draw the attention of a bundle, as in Figures 3 to 5.",
        },
        "Results": {
            "report": "Write a report of all runs: a page, tables and charts.",
            "compare": "Compare systems: scores, significance, differences.",
            "study": "Run variants of a recipe (such as Table 3), and print their table.",
            "runs": "List all artifacts: run, stage, size, age, score.",
            "inspect": "Show lengths, vocabulary and samples of a corpus.",
        },
        "Maintenance": {
            "verify": "Verify the checksums of an artifact and all its inputs.",
            "gc": "Delete artifacts that no recipe needs, after confirmation.",
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

RUNS_COMMANDS = ("compare", "report")  # their arguments are runs, with overrides
QUIET = ("-q", "--quiet")
QUIET_HELP = "Print errors and results only, no progress."
# Where help prints the range of a number, such as "  [1<=x<=1024]".
RANGE = re.compile(r"  \[[\d.<=]*x[\d.<>=]*\]|; [\d.<=]*x[\d.<>=]*(?=\])")

CLOSED_PIPE = 141  # exit code: 128 + SIGPIPE
OUT_OF_MEMORY = (
    "out of memory; lower --workers, --processes, --max-tokens or --beam, choose a smaller "
    "model, or free memory"
)
RERUN = "rerun the same command"  # finished work is kept


def _set_quiet(is_quiet: bool) -> None:
    """Print no progress, if `-q` was passed before the command or after it."""
    if is_quiet:
        # Imports rich; help does not need it.
        from nmtkit.utils import progress

        progress.console.quiet = True


def _refuse_overrides(arguments: list[str]) -> None:
    """Refuse `--set` next to several runs: it does not show which of them it overrides.

    Args:
        arguments: The arguments of the command.
    """
    for number, argument in enumerate(arguments):
        option, _, override = argument.partition("=")
        if option == "--set":
            override = override or "".join(arguments[number + 1 : number + 2])
            raise UserError(
                f"--set belongs to one of the runs; quote that run, such as 'demo --set {override}'"
            )


class _Command(TyperCommand):
    """A command that also accepts `-q`, and whose help names its arguments by their metavars."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Not a parameter: all commands accept it, and none uses its value.
        end = args.index("--") if "--" in args else len(args)
        others = [arg for arg in args[:end] if arg not in QUIET]
        if len(others) < end:
            _set_quiet(True)
        if self.name in RUNS_COMMANDS:
            _refuse_overrides(others)
        options = {"--help"}
        for parameter in self.params:
            options.update(parameter.opts, parameter.secondary_opts)
        hint = option_hint(others, options)
        if hint is not None:
            ctx.fail(hint)
        ctx.allow_extra_args = True  # they are refused below
        try:
            unparsed = super().parse_args(ctx, others + args[end:])
        except typer.BadParameter as error:
            # Typer validates with pydantic, whose prefix is of no use to a user.
            error.message = error.message.removeprefix("Value error, ")
            raise
        if unparsed:
            ctx.fail(argument_hint(str(self.name), unparsed, options))
        return unparsed

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        pieces = ["[OPTIONS]"]
        for name, _ in self._argument_rows():
            pieces.append(name)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments = self._argument_rows()
        options = []
        for option in self.get_params(ctx)[len(arguments) :]:
            record = option.get_help_record(ctx)
            if record is not None:
                names, text = record
                # A range is checked, but its notation is not for everybody.
                options.append((names, RANGE.sub("", text)))
        # --help stays the last one.
        options.insert(-1, (", ".join(QUIET), QUIET_HELP))

        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _argument_rows(self) -> list[tuple[str, str]]:
        """Return the names and help texts of the arguments."""
        rows = []
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                rows.append((str(parameter.metavar), parameter.help))  # type: ignore[attr-defined]
        return rows


class _Group(TyperGroup):
    """A group of commands. Each is imported when it is typed."""

    def __init__(self, **options: Any) -> None:
        """Create a group.

        Args:
            options: Options of Typer's group; its name is a key of GROUPS.
        """
        super().__init__(**options)
        self.groups = GROUPS[str(self.name)]
        # Typer lists these names, and calls `get_command` for the one that was typed.
        self.commands: Any = {}
        for commands in self.groups.values():
            self.commands |= commands

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        help_text = self.commands.get(cmd_name)
        if help_text is None:
            return None
        if cmd_name == "bench":
            return typer.main.get_command(bench_app)
        # `import` is a keyword of Python, and cannot be the name of a function.
        name = "import_model" if cmd_name == "import" else cmd_name
        if self.name == "bench":
            name = f"bench_{cmd_name}"
        function = getattr(import_module(f"nmtkit.cli.{name}"), name)
        # The docstring ends with an example. The help shows it below the options.
        _, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
        example = getattr(function, "example", example)
        command_app = typer.Typer(add_completion=False, **SETTINGS)
        epilog = f"Example: {example}"
        command_app.command(cmd_name, cls=_Command, help=help_text, epilog=epilog)(function)
        return typer.main.get_command(command_app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        # All sections are aligned to the longest name.
        width = max(len(name) for name in self.commands)
        for title, commands in self.groups.items():
            rows = []
            for name, text in commands.items():
                rows.append((name.ljust(width), text))
            with formatter.section(title):
                formatter.write_dl(rows)


Quiet = Annotated[bool, typer.Option("--quiet", "-q", callback=_set_quiet, help=QUIET_HELP)]

app = typer.Typer(
    name="nmtkit", cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, **SETTINGS
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
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
    _quiet: Quiet = False,
) -> None:
    """Reproduce "Attention Is All You Need", or train translation models on your own text."""


bench_app = typer.Typer(
    name="bench", cls=_Group, no_args_is_help=True, add_completion=False, **SETTINGS
)


@bench_app.callback(epilog="Example: nmtkit bench train demo")
def bench(_quiet: Quiet = False) -> None:
    """Measure the speed of training and translation."""


def main() -> None:
    """Run the command that was typed, and exit with a message and a code if it fails."""
    exit_with_agent()
    try:
        app()
    except UserError as error:
        sys.exit(f"nmtkit: {error}")
    except Stopped as stop:
        if stop.exit_code == EXIT_CODE:
            exit_interrupted(str(stop))
        typer.echo(f"nmtkit: {stop}", err=True)
        sys.exit(stop.exit_code)
    except RestartNeeded:
        os.environ[NO_CUDA_GRAPHS] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this command itself
    except AlreadyReported as end:
        sys.exit(end.exit_code)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1 on it
            sys.exit(CLOSED_PIPE)
        raise
    except OSError as error:
        sys.exit(f"nmtkit: {_explain(error)}")
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error) and "can't start new thread" not in str(error):
            raise
        sys.exit(f"nmtkit: {OUT_OF_MEMORY}; then {RERUN}")


def _explain(error: OSError) -> str:
    """Describe an error of the system: what failed, where, and what to do."""
    # The system does not name a file that is open already.
    where = "(in --runs-dir, or at the output path)"
    if error.filename:
        where = visible(f"({error.filename})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full {where}; free some space, then {RERUN}"
    if error.errno == errno.EBADF and error.filename == STANDARD_OUTPUT:
        return f"standard output is closed; redirect it to a file or a pipe, then {RERUN}"
    if error.errno == errno.ENOMEM:
        return f"{OUT_OF_MEMORY}; then {RERUN}"
    return f"{error.strerror or error} {where}; fix this, then {RERUN}"
