"""Standard output of commands: tables and sentences, JSON, or a path."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console

from nmtkit.rendering.grid import WRITERS, Grid, as_rich
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible, visible_json

PIPE_WIDTH = 120  # maximum width of a table in a file or a pipe
TableForm = Literal["markdown", "latex", "csv"]


@dataclass(frozen=True)
class Form:
    """The format of the output: the options --json and --table."""

    as_json: bool = False
    table: TableForm | None = None  # None: for a terminal

    def options(self) -> list[str]:
        """Return the options that select this format."""
        options = []
        if self.as_json:
            options.append("--json")
        if self.table:
            options.append(f"--table={self.table}")
        return options


def show(form: Form, value: object, parts: Iterable[Grid | str]) -> None:
    """Print a result to standard output.

    Args:
        value: The result, to print as JSON.
        parts: Tables and sentences, to print otherwise; CSV has no sentences.

    Raises:
        UserError: There are several tables, and the format is CSV.
    """
    if form.as_json:
        print(as_json(value))
    elif form.table is not None:
        parts = list(parts)
        if sum(isinstance(part, Grid) for part in parts) > 1:
            refuse_csv(form)
        print("\n\n".join(_formatted_parts(parts, form.table)))
    else:
        # Text of users is not markup, and a number in it needs no colour.
        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        for part in parts:
            if isinstance(part, Grid):
                console.print(as_rich(part, console.width))
            else:
                console.print(visible(part), soft_wrap=True)


def print_path(path: Path) -> None:
    """Print a path as a result: for scripts byte by byte, as it may not be UTF-8.

    A terminal would obey its control characters, so there they are shown by name.
    """
    if sys.stdout.isatty():
        typer.echo(visible(str(path)))
    else:
        typer.echo(os.fsencode(path))


def refuse_csv(form: Form) -> None:
    """Refuse CSV for a result of several tables; programs would read them as one."""
    if form.table == "csv" and not form.as_json:
        raise UserError(
            "--table csv prints one table, and this result has several; pass --json, or "
            "--table markdown"
        )


def as_json(value: object) -> str:
    """Return a value as JSON that people can read and compare: indented, with sorted keys."""
    text = json.dumps(
        value, default=to_jsonable_python, ensure_ascii=False, indent=1, sort_keys=True
    )
    return visible_json(text)


def _formatted_parts(parts: Iterable[Grid | str], table: TableForm) -> Iterator[str]:
    """Yield tables in a format, and sentences in between unless it is CSV."""
    for part in parts:
        if isinstance(part, Grid):
            yield WRITERS[table](part)
        elif table == "latex":
            yield f"% {visible(part)}"
        elif table == "markdown":
            yield visible(part)
