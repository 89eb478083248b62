"""Signals that stop training.

This module does not import torch, since the agent may exit before such an import has finished.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
# A signal may come twice: from `timeout`, or from a scheduler and from the agent.
SAME_SIGNAL_S = 1.0

# Environment variables:
NO_CUDA_GRAPHS = "NMTKIT_NO_CUDA_GRAPHS"  # set after capturing a CUDA graph failed
AGENT = "NMTKIT_AGENT"  # the id of the process that started this one with `launch`
CHECK_EVERY_S = 0.5


@contextmanager
def on_stop_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `stop` at the first signal; a later one terminates the process.

    SIGHUP is ignored under `nohup`.

    Args:
        stop: Called once, in the main thread, with the signal.
    """
    first_time: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_time
        if first_time is None:
            first_time = time.monotonic()
            stop(signal.Signals(number))
        elif time.monotonic() - first_time > SAME_SIGNAL_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

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
