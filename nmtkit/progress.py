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
    TextColumn,
    TransferSpeedColumn,
)
from rich.progress import Task as RichTask
from rich.table import Column
from rich.text import Text

from nmtkit.duration import duration
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
        self._done = 0
        self._note: tuple[str, ...] = ()
        self._begin = self._last_time = time.monotonic()
        self._last_line = ""
        self._first: tuple[float, int] | None = None  # time and size of the first advance
        if bar is not None:
            self._id = bar.add_task("", total=total, name=name, note="")

    def advance(self, amount: int) -> None:
        """Count `amount` more units as done."""
        self._done += amount
        self._first = self._first or (time.monotonic(), amount)
        if self._bar is not None:
            note = [self._time_left() or self._elapsed(), *self._note]
            self._bar.update(self._id, completed=self._done, note=", ".join(note))
        elif time.monotonic() - self._last_time >= PLAIN_EVERY_S:
            self.say_line()

    def note(self, *parts: str) -> None:
        """Change the text after the bar; a narrow terminal cuts off its end."""
        self._note = parts

    def say_line(self) -> None:
        """Print the present state on a line of its own."""
        parts = [self._amount(), self._elapsed(), self._byte_rate(), self._time_left(), *self._note]
        line = f"{self._name}: {', '.join(part for part in parts if part)}"
        if line != self._last_line:
            say(line)
        self._last_line, self._last_time = line, time.monotonic()

    def _amount(self) -> str:
        if self._unit == "bytes":
            return f"{decimal(self._done)}{f' of {decimal(self._total)}' if self._total else ''}"
        return f"{self._done:,}{f' of {self._total:,}' if self._total else ''} {self._unit}"

    def _elapsed(self) -> str:
        return duration(time.monotonic() - self._begin)

    def _byte_rate(self) -> str:
        return f"{decimal(int(rate))}/s" if self._unit == "bytes" and (rate := self._rate()) else ""

    def _time_left(self) -> str:
        if not self._total or self._done >= self._total or not (rate := self._rate()):
            return ""
        return f"{duration((self._total - self._done) / rate)} left"

    def _rate(self) -> float:
        """Return units per second, 0 if not known; the first advance may be an earlier run's."""
        begin, at_first = self._first or (time.monotonic(), 0)
        seconds, done = time.monotonic() - begin, self._done - at_first
        return done / seconds if seconds and done > 0 else 0.0


@contextmanager
def task(name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
    """Show the progress of the work in the `with` block."""
    if not console.is_terminal:
        plain = Task(name, total, unit, None)
        yield plain
        plain.say_line()
        return
    columns = [
        _Fitting("name"),
        BarColumn(bar_width=max(6, min(24, (console.width - 40) // 5)), table_column=_fixed()),
        *_amount_columns(unit, total),
        _Fitting("note"),
    ]
    with Progress(*columns, console=console) as bar:
        yield Task(name, total, unit, bar)


def _amount_columns(unit: str, total: int | None) -> list[ProgressColumn]:
    if unit == "bytes":
        return [DownloadColumn(table_column=_fixed()), TransferSpeedColumn(table_column=_fixed())]
    of_total = "" if total is None else f"/{total:,}"
    amount = f"{{task.completed:,.0f}}{of_total} {unit}"
    return [TextColumn(amount, table_column=_fixed())]


def _fixed() -> Column:
    """A column that keeps its width in a narrow terminal."""
    return Column(no_wrap=True)


class _Fitting(ProgressColumn):
    """Shows as much of a text as the other columns leave room for."""

    def __init__(self, field: str) -> None:
        super().__init__()
        self._field = field

    def render(self, task: RichTask) -> Text:
        return Text(task.fields[self._field], no_wrap=True, overflow="ellipsis")
