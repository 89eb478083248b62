"""What stops training from outside. No torch here: its import may take longer than an agent."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
SAME_SIGNAL_S = 1.0  # it may come twice: of `timeout`, or of a scheduler and of the agent

# Environment variable: this process started again because capturing a CUDA graph failed.
NO_CUDA_GRAPHS = "NMTKIT_NO_CUDA_GRAPHS"
AGENT = "NMTKIT_AGENT"  # environment variable: the process id of nmtkit's own agent
CHECK_EVERY_S = 0.5


@contextmanager
def on_stop_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `stop` at the first of the signals that stop, and die of a later one."""
    first_came: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_came
        if first_came is None:
            first_came = time.monotonic()
            stop(signal.Signals(number))
        elif time.monotonic() - first_came > SAME_SIGNAL_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
    before = {each: signal.signal(each, handle) for each in STOPPING if each not in ignored}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def end_with_agent() -> None:
    """If an agent started this process, end it at once, also inside torch, when the agent ends."""
    if AGENT in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        agent = int(os.environ.get(AGENT, os.getppid()))
        threading.Thread(target=_watch, args=(agent,), daemon=True).start()


def _watch(agent: int) -> None:
    while os.getppid() == agent:
        time.sleep(CHECK_EVERY_S)
    os._exit(os.EX_TEMPFAIL)
