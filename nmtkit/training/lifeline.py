"""The lifeline of a process that another one started: it ends when that agent ends.

It does not import torch, which takes longer than an agent may live.
"""

import os
import threading
import time

AGENT = "NMTKIT_AGENT"  # environment variable: the process id of nmtkit's own agent
CHECK_EVERY_S = 0.5


def hold() -> None:
    """If an agent started this process, end it within about `CHECK_EVERY_S` of the agent's end.

    The process does not finish its work: the agent may have been killed for lack of memory,
    and the processes wait for each other inside torch, where no signal handler runs.
    """
    if AGENT in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        agent = int(os.environ.get(AGENT, os.getppid()))
        threading.Thread(target=_watch, args=(agent,), daemon=True).start()


def _watch(agent: int) -> None:
    while os.getppid() == agent:
        time.sleep(CHECK_EVERY_S)
    os._exit(os.EX_TEMPFAIL)
