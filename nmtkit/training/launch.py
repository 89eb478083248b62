"""Training processes on one machine: started, watched, and started again if one of them is lost.

Nothing listens beyond the loopback interface, and nothing that is found in a store is unpickled.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from nmtkit.errors import AlreadyReported, UserError
from nmtkit.training.distributed import ERROR, LOST, TRAINED
from nmtkit.training.signals import AGENT, on_stop_signal

MAX_RESTARTS = 3  # of a lost process
LOOK_EVERY_S = 0.1
END_WITHIN_S = 30.0  # for a process to end after the loss of another one
FIRST_STOP = 129  # exit code: 128 + the lowest signal
DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)  # to a process that lost no other one
LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACES = ("lo", "lo0")  # Linux, macOS


def launch(n_processes: int, arguments: Sequence[str], warn: Callable[[str], None]) -> None:
    """Run `nmtkit ARGUMENTS` in `n_processes` processes, started again if one of them is lost.

    Raises:
        UserError: a process was lost before anything was trained, or too often.
        AlreadyReported: a process has told its error, or a signal stopped them all.
    """
    signals: list[signal.Signals] = []
    with on_stop_signal(signals.append):
        for n_restarts in range(MAX_RESTARTS + 1):
            listener = socket.create_server((LOOPBACK, 0))
            port, number = listener.getsockname()[1], listener.detach()
            store = dist.TCPStore(  # type: ignore[attr-defined]
                LOOPBACK, port, None, True, wait_for_workers=False, master_listen_fd=number
            )
            codes = _wait(_start(n_processes, arguments, port), signals)
            if signals or max(codes) >= FIRST_STOP:
                raise AlreadyReported(128 + signals[0] if signals else max(codes))
            if not any(codes):
                return
            what = _cause(codes, store)
            if not store.check([TRAINED]) or n_restarts == MAX_RESTARTS:
                break
            warn(f"{what}; restart {n_restarts + 1} of {MAX_RESTARTS}, from the last checkpoint")
    if "SIGKILL" in what:
        what += "; if memory is short, ask for fewer --processes or a lower --max-tokens"
    raise UserError(f"{what}; the same command goes on from the last checkpoint")


def _start(n_processes: int, arguments: Sequence[str], port: int) -> list[subprocess.Popen[bytes]]:
    """Start processes that meet at `port`; the user's variables about threads and networks win."""
    (loopback,) = (name for _, name in socket.if_nameindex() if name in LOOPBACK_INTERFACES)
    variables = {
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // n_processes)),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": f"={loopback}",
        **os.environ,
        "WORLD_SIZE": str(n_processes),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        AGENT: str(os.getpid()),
    }
    return [
        subprocess.Popen(  # noqa: S603 - nmtkit itself
            [sys.executable, "-m", "nmtkit", *arguments],
            env={**variables, "RANK": rank, "LOCAL_RANK": rank},
            start_new_session=True,  # Ctrl-C comes to this process, which passes it on once
        )
        for rank in map(str, range(n_processes))
    ]


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], signals: Sequence[signal.Signals]
) -> list[int]:
    """Wait for the exit codes, pass on a signal that stops, and if one is lost end the others."""
    is_told, deadline = False, float("inf")
    while None in (codes := [process.poll() for process in processes]):
        is_lost = any(code and code < FIRST_STOP for code in codes)
        if is_lost:
            deadline = min(deadline, time.monotonic() + END_WITHIN_S)
        if (signals or is_lost) and not is_told:
            is_told = True  # a second signal would end a process at once
            for process in processes:
                process.send_signal(signals[0] if signals else signal.SIGTERM)
        if time.monotonic() > deadline:
            for process in processes:
                process.kill()
                process.wait()
            break
        time.sleep(LOOK_EVERY_S)
    return [LOST if code is None else code for code in codes]


def _cause(codes: Sequence[int], store: "dist.TCPStore") -> str:  # type: ignore[name-defined]
    """Return what went wrong first, or raise AlreadyReported if a process has told it."""
    if 1 in codes:
        raise AlreadyReported(1)
    for rank, code in enumerate(codes):
        if -code in DEADLY:
            return f"training process {rank} was ended by {signal.Signals(-code).name}"
    if store.check([ERROR]):
        return str(store.get(ERROR), "utf-8")
    return f"a training process was lost (exit codes {', '.join(map(str, codes))})"
