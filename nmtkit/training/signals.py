"""The signals that stop training: the first one in good order, a second one at once."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
# The same signal may come twice: `timeout` sends it to the process and to its group, a scheduler to
# all processes of a job, whose agent passes it on to them.
SAME_SIGNAL_S = 1.0


@contextmanager
def on_stop_signal(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `stop` at the first of the signals, and die of a later one.

    Under `nohup`, which has SIGHUP ignored, training outlives its terminal.
    """
    first_came: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_came
        if first_came is None:
            first_came = time.monotonic()
            stop(signal.Signals(number))
        elif time.monotonic() - first_came > SAME_SIGNAL_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    before = {
        each: signal.signal(each, handle)
        for each in STOPPING
        if not (each == signal.SIGHUP and is_nohup)
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
