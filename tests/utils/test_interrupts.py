"""SIGINT in a command: one sentence and exit code 130, whatever becomes of KeyboardInterrupt."""

import signal
import subprocess
import sys
from functools import partial
from textwrap import indent

import pytest

from nmtkit.utils.interrupts import EXIT_CODE, STOPPED

# A command whose work is one of the parts below.
PROGRAM = """
import signal, sys, time, weakref
from nmtkit import __main__
from nmtkit.cli import app
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
        IGNORED_BY_PYTHON,
        SECOND,
    ],
)
def test_interrupt_is_one_sentence(work: str) -> None:
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, "", f"nmtkit: {STOPPED}\n")


def test_interrupt_during_imports() -> None:
    assert ended(EARLY) == (EXIT_CODE, "", f"nmtkit: {STOPPED}\n")


def test_interrupted_command_has_own_sentence() -> None:
    work = TRANSLATED.format(error="Stopped('lines are in x', exit_code=130)")
    program = PROGRAM.format(work=indent(work, "    "))
    assert ended(program) == (EXIT_CODE, "", "nmtkit: lines are in x\n")


def test_ignored_signal_stays_ignored() -> None:
    """As in the background of a shell."""
    program = PROGRAM.format(work="    interrupt()\n    print('finished')")
    assert ended(program, signal.SIG_IGN) == (0, "finished\n", "")
