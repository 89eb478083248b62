"""Progress: lines on standard error, and only results on standard output."""

import ast
import io
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from nmtkit.utils import progress


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The output if standard error is a file or a pipe and not a terminal."""
    file = io.StringIO()
    monkeypatch.setattr(progress.console, "_file", file)
    monkeypatch.setattr(progress.console, "_force_terminal", False)
    return file


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_progress_is_on_standard_error() -> None:
    work = """
from nmtkit.utils import progress
progress.log("begin")
with progress.task("count", unit="pairs", total=7000) as task:
    task.advance(5000)
    task.note("loss 4.25")
"""
    done = subprocess.run(
        [sys.executable, "-c", work],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={"PATH": ""},
    )
    assert done.stdout == ""
    assert done.stderr == "begin\ncount: 5,000 of 7,000 pairs, 0 s, loss 4.25\n"


def test_prefix_of_block_begins_every_message(plain: io.StringIO) -> None:
    with progress.prefix("outer"):
        progress.log("begin")
        for _ in range(2):
            progress.log_once("note")
            progress.warn_once("damaged")
        with progress.prefix("inner"), progress.task("count", unit="pairs", total=2) as task:
            progress.warn("damaged")
            task.advance(2)
        with progress.prefix(""):
            progress.log("download a.gz")
        progress.log("end")
    progress.log("no prefix")
    assert plain.getvalue().split("\n") == [
        "outer: begin",
        "outer: note",
        "warning: outer: damaged",
        "warning: inner: damaged",
        "inner: count: 2 of 2 pairs, 0 s",
        "download a.gz",
        "outer: end",
        "no prefix",
        "",
    ]


def test_warnings_have_one_prefix(plain: io.StringIO) -> None:
    progress.warn("test: the text is damaged")
    for _ in range(2):
        progress.warn_once("the text was damaged before")
    assert plain.getvalue().split("\n") == [
        "warning: test: the text is damaged",
        "warning: the text was damaged before",
        "",
    ]


def test_one_module_prints_warnings() -> None:
    """No other module prints the prefix, which would repeat it, or a prefix of its own."""
    package = Path(progress.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_prefix = re.match(r"(warning|note|hint): ", node.value, re.IGNORECASE)
                assert not is_prefix or path.name == "progress.py", (path, node.value)


def test_plain_progress_every_ten_seconds(plain: io.StringIO, clock: list[float]) -> None:
    with progress.task("train", unit="steps", total=100) as task:
        for _ in range(25):
            clock[0] += 1
            task.advance(1)
    assert plain.getvalue().split("\n") == [
        "train: 10 of 100 steps, 10 s, 90 s left",
        "train: 20 of 100 steps, 20 s, 80 s left",
        "train: 25 of 100 steps, 25 s, 75 s left",
        "",
    ]


def test_plain_progress_ends_with_one_line(plain: io.StringIO, clock: list[float]) -> None:
    with progress.task("translate", unit="lines", total=8) as task:
        clock[0] += 20
        task.advance(8)
    assert plain.getvalue() == "translate: 8 of 8 lines, 20 s\n"


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_bar_keeps_all_parts(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], width: int
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    name = "prepare: training text to ids"
    with progress.task(name, unit="steps", total=100_000) as task:
        task.advance(1_000)
        clock[0] += 10
        task.note("loss 5.96", "5,460 target tokens/s", "learning rate 2.31e-03")
        task.advance(1_000)
    assert isinstance(console.file, io.StringIO)
    printed = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[━╸╺]", " ", console.file.getvalue())
    assert max(len(line) for line in printed.split("\n")) <= 2 * width  # with blanked codes
    for part in (name, "2,000 of 100,000 steps", "16 min left", "learning rate 2.31e-03"):
        assert part in " ".join(printed.split())


@pytest.mark.parametrize(("total", "seconds"), [(600, 0.25), (100_000, 0.43)])
def test_training_bar_has_one_line(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], total: int, seconds: float
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "console", console)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with progress.task("train", unit="steps", total=total) as task:
        for _ in range(total - 1):
            clock[0] += seconds
            task.note("loss 1.57", "394,301 tokens/s", detail="learning rate 3.04e-03")
            task.advance(1)
    assert isinstance(console.file, io.StringIO)
    # The last drawing: a bar of two lines would move the cursor up.
    last = console.file.getvalue().rstrip().rpartition("\r")[2]
    assert "\x1b[1A" not in console.file.getvalue()
    assert "394,301 tokens/s" in last
    assert f"{total - 1:,} of {total:,} steps" in last


@pytest.mark.parametrize(
    ("variables", "is_live"),
    [
        ({"TERM": "xterm-color"}, True),
        ({"TERM": "dumb"}, False),
        # As the kernel of a notebook sets them for commands.
        ({"TERM": "xterm-color", "JPY_PARENT_PID": "7", "FORCE_COLOR": "1"}, False),
    ],
)
def test_lines_where_nothing_can_be_redrawn(variables: dict[str, str], is_live: bool) -> None:
    work = """
from nmtkit.utils import progress
with progress.task("count", unit="pairs", total=7000) as task:
    task.advance(7000)
"""
    terminal, end = os.openpty()
    command = [sys.executable, "-c", work]
    subprocess.run(command, stdout=end, stderr=end, env={"PATH": "", **variables}, check=True)
    os.close(end)
    printed = b""
    with suppress(OSError):  # at the end of a terminal
        while chunk := os.read(terminal, 1_000):
            printed += chunk
    os.close(terminal)
    assert (b"\x1b[" in printed) == is_live
    assert b"7,000 of 7,000 pairs" in printed
    if not is_live:
        assert printed == b"count: 7,000 of 7,000 pairs, 0 s\r\n"


def test_bytes_have_rate_and_time_left(plain: io.StringIO, clock: list[float]) -> None:
    """What an earlier run brought does not count as speed; what had to be dropped counts back."""
    with progress.task("fetch", unit="bytes", total=657_632_379) as task:
        task.advance(157_632_379)
        for amount in (50_000_000, 50_000_000, -20_000_000, 120_000_000):
            clock[0] += 10
            task.advance(amount)
        task.advance(300_000_000)
    assert plain.getvalue().split("\n") == [
        "fetch: 207.6 MB of 657.6 MB, 10 s, 5.0 MB/s, 90 s left",
        "fetch: 257.6 MB of 657.6 MB, 20 s, 5.0 MB/s, 80 s left",
        "fetch: 237.6 MB of 657.6 MB, 30 s, 2.7 MB/s, 158 s left",
        "fetch: 357.6 MB of 657.6 MB, 40 s, 5.0 MB/s, 60 s left",
        "fetch: 657.6 MB of 657.6 MB, 40 s, 12.5 MB/s",
        "",
    ]


def test_message_is_one_line(plain: io.StringIO) -> None:
    message = "[model] n_layers of :dog: in /a/[b]/c" + " long" * 60
    progress.log(message)
    assert plain.getvalue() == message + "\n"
