"""SIGINT in a command: one sentence and exit code 130, whatever becomes of KeyboardInterrupt."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from textwrap import indent

import pytest
from terminals import on_terminal

from nmtkit.utils.interrupts import AGENT, CLEAR_LINE, EXIT_CODE, SHOW_CURSOR, STOPPED

# A command whose work is one of the parts below.
PROGRAM = """
import os, shutil, signal, sys, tempfile, threading, time, weakref
from pathlib import Path
from nmtkit import __main__
from nmtkit.cli import app
from nmtkit.store.files import move
from nmtkit.utils import interrupts
from nmtkit.utils.errors import Stopped, UserError

interrupts.MAX_CLEANUP_S = 1

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

def work():
{work}

app.app = work
__main__.main()
"""
PROPAGATED = "interrupt()"
# As a library does that calls a function of Python from C.
TRANSLATED = """
try:
    interrupt()
except KeyboardInterrupt:
    raise {error} from None
"""
LOST = """
try:
    interrupt()
except KeyboardInterrupt:
    pass
{then}
"""
IGNORED_BY_PYTHON = """
class Value: pass
value = Value()
reference = weakref.ref(value, interrupt)
del value
time.sleep(60)
"""
SECOND = """
try:
    interrupt()
finally:
    interrupt()
"""
REPEATED = """
write = os.write
os.write = lambda *args: (write(*args), interrupt())
interrupt()
"""
# A library has turned KeyboardInterrupt into an error that means something else to its caller.
MISTAKEN = """
try:
    interrupt()
except KeyboardInterrupt:
    pass
try:
    raise UserError("x is damaged")
except UserError:
    print("x would be deleted")
"""
INCOMPLETE = """
folder = Path(tempfile.mkdtemp())
(folder / "draft").touch()
try:
    interrupt()
except KeyboardInterrupt:
    pass
try:
    move(folder / "draft", folder / "complete")
finally:
    print(*(path.name for path in folder.iterdir()))
    shutil.rmtree(folder)
"""
# Python waits for threads, and calls functions that were registered.
AT_EXIT = """
import atexit
atexit.register(interrupt)
"""
# Work in another thread does not receive KeyboardInterrupt.
IN_THREAD = """
def compute():
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted in the library")

try:
    interrupts.call_interruptibly(compute)
except KeyboardInterrupt:
    print("interrupted")
"""
# Ctrl-C while the package is imported.
EARLY = """
import signal, sys
from nmtkit.__main__ import main

class Interrupted:
    def find_spec(self, name, *_):
        if name == "nmtkit.cli.app":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupted())
main()
"""


def ended(program: str, handler: signal.Handlers = signal.SIG_DFL) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program of Python."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=partial(signal.signal, signal.SIGINT, handler),
    )
    return run.returncode, run.stdout, run.stderr


@pytest.mark.parametrize(
    "work",
    [
        PROPAGATED,
        TRANSLATED.format(error="ImportError('initialization failed')"),
        TRANSLATED.format(error="UserError('String should match pattern')"),
        TRANSLATED.format(error="SystemExit(1)"),
        LOST.format(then="time.sleep(60)"),
        LOST.format(then="sys.exit(0)"),
        MISTAKEN,
        REPEATED,
        AT_EXIT,
        IGNORED_BY_PYTHON,
        SECOND,
    ],
)
def test_interrupt_is_one_sentence(work: str) -> None:
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, "", f"nmtkit: {STOPPED}\n")


def test_interrupt_after_command() -> None:
    """Between the end of `main` and that of Python, and when Python has removed its handlers."""
    program = PROGRAM.format(work="    sys.exit(0)").removesuffix("__main__.main()\n")
    after = "try:\n    __main__.main()\nfinally:\n    interrupt()\n"
    assert ended(program + after) == (EXIT_CODE, "", f"nmtkit: {STOPPED}\n")
    late = """
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

sys.last_value = Late()
__main__.main()
"""
    assert ended(program + late) == (0, "", "")


def test_progress_bar_and_sentence_share_no_line(tmp_path: Path) -> None:
    work = """
    from nmtkit.utils import progress
    with progress.task("x", unit="pairs", total=2) as task:
        task.advance(1)
        time.sleep(1)
        try:
            interrupt()
        except KeyboardInterrupt:
            time.sleep(60)
"""
    command = [sys.executable, "-c", PROGRAM.format(work=work)]
    with on_terminal(command, tmp_path) as (process, terminal):
        printed = terminal.read()
    assert process.returncode == EXIT_CODE
    bar, clear, sentence = printed.rpartition(CLEAR_LINE)
    assert "1 of 2 pairs" in bar
    assert (clear, sentence) == (CLEAR_LINE, f"nmtkit: {STOPPED}\r\n{SHOW_CURSOR}")


@pytest.mark.parametrize(("work", "printed"), [(INCOMPLETE, "draft"), (IN_THREAD, "interrupted")])
def test_interrupt_before_result(work: str, printed: str) -> None:
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, f"{printed}\n", f"nmtkit: {STOPPED}\n")


def test_interrupt_during_imports() -> None:
    assert ended(EARLY) == (EXIT_CODE, "", f"nmtkit: {STOPPED}\n")


def test_interrupted_command_has_own_sentence() -> None:
    work = TRANSLATED.format(error="Stopped('lines are in x', exit_code=130)")
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, "", "nmtkit: lines are in x\n")


def test_child_process_leaves_sentence_to_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AGENT, str(os.getpid()))
    program = PROGRAM.format(work="    interrupt()")
    assert ended(program) == (-signal.SIGINT, "", "")
    work = TRANSLATED.format(error="Stopped('stopped after step 3', exit_code=130)")
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, "", "nmtkit: stopped after step 3\n")


def test_ignored_signal_stays_ignored() -> None:
    """As in the background of a shell."""
    program = PROGRAM.format(work="    interrupt()\n    print('finished')")
    assert ended(program, signal.SIG_IGN) == (0, "finished\n", "")
