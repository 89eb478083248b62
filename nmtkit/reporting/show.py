"""What a command shows on standard output: tables and sentences, or JSON for machines."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic_core import to_jsonable_python
from rich.console import Console

from nmtkit.reporting.grid import WRITERS, Grid, as_rich
from nmtkit.utils.text import visible, visible_json

PIPE_WIDTH = 120  # of a table in a file or a pipe, at most
TableForm = Literal["markdown", "latex", "csv"]


@dataclass(frozen=True)
class Form:
    as_json: bool = False
    table: TableForm | None = None  # None: for a terminal

    def options(self) -> list[str]:
        """Return what to type for another process to show the same."""
        table = [f"--table={self.table}"] if self.table else []
        return [*(["--json"] if self.as_json else []), *table]


def show(form: Form, value: object, parts: Iterable[Grid | str]) -> None:
    """Print `value` as JSON for machines, or `parts` for people; CSV leaves the sentences out."""
    if form.as_json:
        print(as_json(value))
    elif form.table is not None:
        print("\n\n".join(_written(parts, form.table)))
    else:
        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = PIPE_WIDTH
        for part in parts:
            if isinstance(part, Grid):
                console.print(as_rich(part))
            else:
                console.print(visible(part), soft_wrap=True)


def as_json(value: object) -> str:
    text = json.dumps(
        value, default=to_jsonable_python, ensure_ascii=False, indent=1, sort_keys=True
    )
    return visible_json(text)


def _written(parts: Iterable[Grid | str], table: TableForm) -> Iterable[str]:
    for part in parts:
        if isinstance(part, Grid):
            yield WRITERS[table](part)
        elif table != "csv":
            yield f"% {visible(part)}" if table == "latex" else visible(part)
