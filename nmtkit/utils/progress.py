"""Live progress on a terminal, plain lines elsewhere; all on standard error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from nmtkit.utils.duration import duration
from nmtkit.utils.text import visible

PLAIN_EVERY_S = 10.0  # minimum time between two plain lines

console = Console(stderr=True, highlight=False, emoji=False)


def log(message: str) -> None:
    """Print a message that stays on the screen."""
    console.print(visible(message), markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning that stays on the screen: of a problem that does not stop the command."""
    log(f"warning: {message}")


@cache
def warn_once(message: str) -> None:
    """Print a warning, unless this process has printed the same one."""
    warn(message)


class Task:
    def __init__(self, name: str, total: int | None, unit: str, bar: Progress | None) -> None:
        self._name, self._total, self._unit, self._bar = name, total, unit, bar
        self._done = 0
        self._note: tuple[str, ...] = ()
        self._begin = self._last_time = time.monotonic()
        self._first: tuple[float, int] | None = None  # time and size of the first advance
        if bar is not None:
            self._id = bar.add_task(name, total=total, state="")

    def advance(self, amount: int) -> None:
        self._done += amount
        self._first = self._first or (time.monotonic(), amount)
        if self._bar is not None:
            self._bar.update(self._id, completed=self._done, state=self._state())
        elif time.monotonic() - self._last_time >= PLAIN_EVERY_S:
            self.say_line()

    def note(self, *parts: str) -> None:
        """Change the text at the end; a narrow terminal cuts it off."""
        self._note = parts

    def say_line(self) -> None:
        log(f"{self._name}: {self._state()}")
        self._last_time = time.monotonic()

    def _state(self) -> str:
        now, is_bytes = time.monotonic(), self._unit == "bytes"
        done, total = (decimal(n) if is_bytes else f"{n:,}" for n in (self._done, self._total or 0))
        parts = [done + (f" of {total}" if self._total else "")]
        parts[0] += "" if is_bytes else f" {self._unit}"
        parts.append(duration(now - self._begin))
        # The first advance may be an earlier run's.
        begin, at_first = self._first or (now, 0)
        if now > begin and self._done > at_first:
            rate = (self._done - at_first) / (now - begin)
            if is_bytes:
                parts.append(f"{decimal(int(rate))}/s")
            if self._total and self._done < self._total:
                parts.append(f"{duration((self._total - self._done) / rate)} left")
        return ", ".join([*parts, *self._note])


@contextmanager
def task(name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
    if not console.is_terminal:
        plain = Task(name, total, unit, None)
        yield plain
        plain.say_line()
        return
    fitting = Column(no_wrap=True, overflow="ellipsis")  # cut off in a narrow terminal
    columns = [
        TextColumn("{task.description}", markup=False, table_column=fitting),
        BarColumn(bar_width=max(6, min(24, (console.width - 40) // 5))),
        TextColumn("{task.fields[state]}", markup=False, table_column=fitting),
    ]
    with Progress(*columns, console=console) as bar:
        yield Task(name, total, unit, bar)
