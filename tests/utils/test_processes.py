"""Stop signals: the first one, a repetition, and a second one."""

import signal
import subprocess
import sys
import time

import pytest

from nmtkit.utils.interrupts import EXIT_CODE, STOPPED
from nmtkit.utils.processes import SAME_SIGNAL_S

# A process that sleeps for a minute and prints a line for the first signal.
SLEEPER = """
import os, signal, time
from nmtkit.utils.processes import on_stop_signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also if these tests run under nohup
signals = []
with on_stop_signal(signals, lambda: os.write(1, f"{signals[0].name}\\n".encode())):
    os.write(1, b"ready\\n")
    time.sleep(60)
"""
# The signal interrupts code that holds a lock, and the action waits for the same lock.
LOCKED = """
import signal, threading
from nmtkit.utils.processes import on_stop_signal
lock = threading.Lock()
acted = []

def act():
    with lock:
        acted.append(list(signals))

signals = []
with on_stop_signal(signals, act):
    with lock:
        signal.raise_signal(signal.SIGTERM)
        print(signals == [signal.SIGTERM], acted)
print(acted == [[signal.SIGTERM]])
acted.clear()
with on_stop_signal([], act):
    pass
print(acted)
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGINT, EXIT_CODE),
    ],
)
def test_second_signal_kills(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == f"{number.name}\n".encode()
        process.send_signal(number)
        time.sleep(SAME_SIGNAL_S + 0.1)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(10) == code
        assert process.stdout.read() == b""
        sentence = f"nmtkit: {STOPPED}\n" if number == signal.SIGINT else ""
        assert process.stderr.read().decode() == sentence


def test_action_may_wait_for_lock() -> None:
    command = [sys.executable, "-c", LOCKED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "True []\nTrue\n[]\n"
