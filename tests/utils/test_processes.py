"""Stop signals: the first one, a repetition, and a second one."""

import signal
import subprocess
import sys
import time

import pytest

from nmtkit.utils.processes import SAME_SIGNAL_S

# A process that sleeps for a minute and prints a line for every stop. It writes without a buffer:
# a signal handler must not use a buffer that the interrupted code is writing to.
SLEEPER = """
import os, signal, time
from nmtkit.utils.processes import on_stop_signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if these tests run under nohup
with on_stop_signal(lambda number: os.write(1, f"{number.name}\\n".encode())):
    os.write(1, b"ready\\n")
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_signal_kills(
    number: signal.Signals,
) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}\n".encode()
        process.send_signal(number)
        time.sleep(SAME_SIGNAL_S + 0.1)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(10) == -number
        assert process.stdout.read() == b""
