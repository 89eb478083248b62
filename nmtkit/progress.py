"""Live progress on a terminal, plain lines elsewhere.

Always on standard error, so that results can be piped.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

PLAIN_EVERY_S = 10.0  # a line of plain progress at most this often

console = Console(stderr=True, highlight=False, emoji=False)


def say(message: str) -> None:
    """Tell one thing that stays on the screen."""
    console.print(message, markup=False, soft_wrap=True)


class Task:
    """One piece of long work."""

    def __init__(self, name: str, total: int | None, unit: str, bar: Progress | None) -> None:
        self._name, self._total, self._unit, self._bar = name, total, unit, bar
        self._done, self._note = 0, ""
        self._begin = self._last_line = time.monotonic()
        self._id = None if bar is None else bar.add_task(name, total=total, unit=unit, note="")

    def advance(self, amount: int) -> None:
        """Tell that `amount` more units are done."""
        self._done += amount
        if self._bar is not None and self._id is not None:
            self._bar.update(self._id, completed=self._done, note=self._note)
        elif time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            say(self._line())

    def note(self, text: str) -> None:
        """Change what stands behind the bar."""
        self._note = text

    def _line(self) -> str:
        of_total = f" of {self._total:,}" if self._total else ""
        note = f", {self._note}" if self._note else ""
        seconds = time.monotonic() - self._begin
        return f"{self._name}: {self._done:,}{of_total} {self._unit}, {seconds:.0f} s{note}"

    def end(self) -> None:
        """Say how it ended, on one line that stays."""
        if self._bar is None:
            say(self._line())


@contextmanager
def task(name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
    """Show the progress of the work in the `with` block."""
    if not console.is_terminal:
        plain = Task(name, total, unit, None)
        yield plain
        plain.end()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        yield Task(name, total, unit, bar)
