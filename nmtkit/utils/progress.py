"""Live progress on a terminal, plain lines elsewhere; all on standard error."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal

from nmtkit.utils import interrupts
from nmtkit.utils.text import duration, visible

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_EVERY_S = 10.0  # minimum time between two plain lines

console = Console(stderr=True, highlight=False, emoji=False)
printed_kinds: set[str] = set()  # of the messages that this process prints once
_prefix = ContextVar("prefix", default="")


@contextmanager
def prefix(name: str) -> Iterator[None]:
    """Begin all messages of a block with the name of its command: "prepare: ..".

    Within another block, only the inner name is printed; without a name, messages have none.
    """
    token = _prefix.set(f"{name}: " if name else "")
    try:
        yield
    finally:
        _prefix.reset(token)


def log(message: str) -> None:
    """Print a message that stays on the screen."""
    _print(f"{_prefix.get()}{message}")


def log_once(message: str) -> None:
    """Print a message, unless this process has printed it."""
    if _is_new(message):
        log(message)


def warn(message: str, *, even_if_quiet: bool = False) -> None:
    """Print a warning that stays on the screen: of a problem that does not stop the command.

    Args:
        even_if_quiet: Print it with `-q`, too: the result is not what the user may take it for.
    """
    is_quiet = console.quiet
    if even_if_quiet:
        console.quiet = False
    _print(f"warning: {_prefix.get()}{message}")
    console.quiet = is_quiet


def warn_once(message: str, kind: str = "", *, even_if_quiet: bool = False) -> None:
    """Print a warning, unless this process has printed one of the same kind.

    Args:
        kind: What it warns of; empty if only equal messages are of the same kind.
        even_if_quiet: Print it with `-q`, too.
    """
    if _is_new(kind or message):
        warn(message, even_if_quiet=even_if_quiet)


def _print(line: str) -> None:
    console.print(visible(line), markup=False, soft_wrap=True)


def _is_new(kind: str) -> bool:
    """Return whether this process has printed no message of a kind; from now on, it has."""
    is_new = kind not in printed_kinds
    printed_kinds.add(kind)
    return is_new


class Task:
    """Work that reports its progress."""

    def __init__(self, name: str, total: int | None, unit: str, bar: "Progress | None") -> None:
        """Begin the work.

        Args:
            total: Number of units of work, if it is known.
            unit: The unit in the plural. "bytes" is formatted as kB, MB, etc.
            bar: The progress bar, or None to print plain lines.
        """
        self._name = f"{_prefix.get()}{name}"
        self._total = total
        self._unit = unit
        self._bar = bar
        self._done = 0
        self._note: tuple[str, ...] = ()
        self._begin = time.monotonic()
        self._last_line = self._begin
        self._first: tuple[float, int] | None = None  # time and size of the first advance
        if bar is not None:
            self._id = bar.add_task(self._name, total=total, state="")

    def advance(self, amount: int) -> None:
        """Report that `amount` more units of work are done."""
        self._done += amount
        if self._first is None:
            self._first = (time.monotonic(), amount)
        if self._bar is not None:
            self._bar.update(self._id, completed=self._done, state=self._state())
        elif time.monotonic() - self._last_line >= PLAIN_EVERY_S and self._done != self._total:
            self.print_line()  # the line of the finished work is printed at its end

    def note(self, *parts: str, detail: str = "") -> None:
        """Set the text at the end of the state.

        Args:
            detail: A last part, for plain lines only; a bar has no space for it.
        """
        self._note = (*parts, detail) if detail and self._bar is None else parts

    def print_line(self) -> None:
        """Print the state as a plain line."""
        _print(f"{self._name}: {self._state()}")
        self._last_line = time.monotonic()

    def _amount(self, n_units: int) -> str:
        return decimal(n_units) if self._unit == "bytes" else f"{n_units:,}"

    def _state(self) -> str:
        """Return the state, such as "5,000 of 7,000 pairs, 12 s, 5 s left"."""
        now = time.monotonic()
        amount = self._amount(self._done)
        if self._total:
            amount += f" of {self._amount(self._total)}"
        if self._unit != "bytes":
            amount += f" {self._unit}"
        parts = [amount, duration(now - self._begin)]
        # The rate counts from the first advance, because that may be work of an earlier run.
        first_time, first_amount = self._first or (now, 0)
        if now > first_time and self._done > first_amount:
            rate = (self._done - first_amount) / (now - first_time)
            if self._unit == "bytes":
                parts.append(f"{decimal(int(rate))}/s")
            if self._total and self._done < self._total:
                # A bar has one line of 80 columns for training: the time that is left matters.
                if self._bar is not None:
                    del parts[1]
                parts.append(f"{duration((self._total - self._done) / rate)} left")
        parts += self._note
        return ", ".join(parts)


def _is_live() -> bool:
    """Return whether standard error is a terminal that can redraw a line.

    A cell of Jupyter or Colab is a terminal to a command, but shows redrawn lines one below the
    other (jupyter/notebook#2567). The kernel marks its processes with JPY_PARENT_PID.
    """
    is_notebook = "JPY_PARENT_PID" in os.environ
    return console.is_terminal and not console.is_dumb_terminal and not is_notebook


@contextmanager
def task(name: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
    """Report the progress of work on standard error: a bar on a terminal, lines elsewhere.

    Args:
        unit: The unit in the plural. "bytes" is formatted as kB, MB, etc.
        total: Number of units of work, if it is known.
    """
    if not _is_live():
        plain = Task(name, total, unit, None)
        yield plain
        plain.print_line()
        return
    # Lines elsewhere do not need these modules.
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    # In a narrow terminal, the state has several lines, and only a very long name is cut off.
    name_column = Column(no_wrap=True, overflow="ellipsis", max_width=console.width // 2)
    columns = [
        TextColumn("{task.description}", markup=False, table_column=name_column),
        BarColumn(bar_width=max(6, min(24, (console.width - 40) // 6))),
        TextColumn("{task.fields[state]}", markup=False, table_column=Column(ratio=1)),
    ]
    interrupts.note_progress_bar()
    with Progress(*columns, console=console) as bar:
        yield Task(name, total, unit, bar)
