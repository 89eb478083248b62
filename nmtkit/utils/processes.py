"""Processes that run nmtkit for another one: how they start, stop, and exit with it.

This module does not import torch, since the parent may exit before such an import has finished.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from nmtkit.utils.interrupts import AGENT, exit_interrupted

# Environment variables:
SAFE_PATH = "PYTHONSAFEPATH"  # of Python; `python -P` does the same
NO_CUDA_GRAPHS = "NMTKIT_NO_CUDA_GRAPHS"  # set after capturing a CUDA graph failed

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
# A signal may come twice: from `timeout`, or from a scheduler and from the agent.
SAME_SIGNAL_S = 1.0
CHECK_EVERY_S = 0.5


def nmtkit_command(*arguments: str) -> list[str]:
    """Return the command line that runs `nmtkit ARGUMENTS` in a child process."""
    # Python puts the working directory in front of its modules for `-m` and `-c`: a `random.py` or
    # an older copy of nmtkit there would run instead of the installed code. But `python -m nmtkit`
    # in a clone that is not installed finds nmtkit only in this directory.
    safe_path = [] if str(Path.cwd()) in sys.path else ["-P"]
    return [sys.executable, *safe_path, "-m", "nmtkit", *arguments]


@contextmanager
def safe_spawning() -> Iterator[None]:
    """Let multiprocessing start its children without the working directory.

    They receive the import path of this process, but import multiprocessing itself before that.
    """
    previous = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = previous


@contextmanager
def on_stop_signal(
    signals: list[signal.Signals], act: Callable[[], object] | None = None
) -> Iterator[None]:
    """Append the first signal to `signals`; a later one terminates the process.

    SIGHUP is ignored under `nohup`.

    Args:
        act: Called after the first signal, in another thread. A signal handler may have interrupted
            code that holds a lock, such as that of the console, and must not wait for one.
    """
    first_time: float | None = None
    has_signal: SimpleQueue[bool] = SimpleQueue()  # a signal handler may call its `put`

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_time
        if first_time is None:
            first_time = time.monotonic()
            signals.append(signal.Signals(number))
            has_signal.put(True)
        elif time.monotonic() - first_time > SAME_SIGNAL_S:
            if number == signal.SIGINT:
                exit_interrupted()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def wait_and_act() -> None:
        if has_signal.get() and act is not None:
            act()

    thread = threading.Thread(target=wait_and_act, daemon=True)
    thread.start()

    # Handlers are restored at the end, for a command that runs several stages.
    handlers = {}
    for number in STOP_SIGNALS:
        if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
            continue
        handlers[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        has_signal.put(False)
        thread.join()


def exit_with_agent() -> None:
    """Exit when the agent that started this process exits, if there is one, also inside torch."""
    if AGENT in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        agent = int(os.environ.get(AGENT, os.getppid()))
        threading.Thread(target=_watch, args=(agent,), daemon=True).start()


def _watch(agent: int) -> None:
    """Exit once `agent` is not the parent process any more."""
    while os.getppid() == agent:
        time.sleep(CHECK_EVERY_S)
    os._exit(os.EX_TEMPFAIL)
