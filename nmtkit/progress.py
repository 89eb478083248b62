"""Live progress on a terminal, plain lines elsewhere.

All of it goes to standard error, so that results can be piped.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from nmtkit.visible import visible

PLAIN_EVERY_S = 10.0  # minimum time between two plain lines

console = Console(stderr=True, highlight=False, emoji=False)


def say(message: str) -> None:
    """Print a message that stays on the screen."""
    console.print(visible(message), markup=False, soft_wrap=True)


def mute() -> None:
    """Print nothing from now on: the terminal is gone, and writing to it would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class Task:
    """A long piece of work whose progress is shown."""

    def __init__(self, name: str, total: int | None, unit: str, bar: Progress | None) -> None:
        self._name, self._total, self._unit, self._bar = name, total, unit, bar
        self._done, self._note = 0, ""
        self._begin = self._last_line = time.monotonic()
        self._first: tuple[float, int] | None = None  # time and size of the first advance
        self._id = None if bar is None else bar.add_task(name, total=total, unit=unit, note="")

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""
        self._done += amount
        self._first = self._first or (time.monotonic(), amount)
        if self._bar is not None and self._id is not None:
            self._bar.update(self._id, completed=self._done, note=self._note)
        elif time.monotonic() - self._last_line >= PLAIN_EVERY_S:
            self._last_line = time.monotonic()
            say(self._line())

    def note(self, text: str) -> None:
        """Change the text after the bar."""
        self._note = text

    def _line(self) -> str:
        if self._unit == "bytes":
            of_total = f" of {decimal(self._total)}" if self._total else ""
            done, rate = f"{decimal(self._done)}{of_total}", self._rate()
        else:
            of_total = f" of {self._total:,}" if self._total else ""
            done, rate = f"{self._done:,}{of_total} {self._unit}", ""
        note = f", {self._note}" if self._note else ""
        seconds = time.monotonic() - self._begin
        return f"{self._name}: {done}, {seconds:.0f} s{rate}{note}"

    def _rate(self) -> str:
        """Return bytes per second and the time left; the first advance may be an earlier run's."""
        begin, at_first = self._first or (time.monotonic(), 0)
        seconds, arrived = time.monotonic() - begin, self._done - at_first
        if not (seconds and arrived > 0):
            return ""
        rate = arrived / seconds
        shown = f", {decimal(int(rate))}/s"
        if self._total and self._total > self._done:
            shown += f", {(self._total - self._done) / rate:.0f} s left"
        return shown

    def end(self) -> None:
        """Print the final state, on a line that stays."""
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
    amount: tuple[ProgressColumn, ...] = (TextColumn("{task.completed:,.0f} {task.fields[unit]}"),)
    if unit == "bytes":
        amount = (DownloadColumn(), TransferSpeedColumn())
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        *amount,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        yield Task(name, total, unit, bar)
