"""Training processes on one machine: started, watched, and restarted if one of them is lost.

Nothing listens beyond the loopback interface, and nothing that is found in a store is unpickled.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from nmtkit.training.distributed import ERROR, LOST, TRAINED
from nmtkit.training.signals import AGENT, on_stop_signal
from nmtkit.utils.child_processes import nmtkit_command
from nmtkit.utils.errors import AlreadyReported, UserError

MAX_RESTARTS = 3  # of a lost process
LOOK_EVERY_S = 0.1
END_WITHIN_S = 30.0  # for a process to end after the loss of another one
CONNECT_WITHIN_S = 5.0  # to an address of this machine
FIRST_STOP = 129  # exit code: 128 + the lowest signal
DEADLY = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)  # to a process that lost no other one
LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACES = ("lo", "lo0")  # Linux, macOS


def launch(n_processes: int, arguments: Sequence[str], warn: Callable[[str], None]) -> None:
    """Run `nmtkit ARGUMENTS` in several processes, restarted if one of them is lost.

    Args:
        n_processes: Number of processes.
        arguments: Command line of each of them.
        warn: Prints a warning.

    Raises:
        UserError: The processes cannot start or meet; or one was lost before anything was trained,
            or too often.
        AlreadyReported: A process has printed its error, or a signal stopped them all.
    """
    _check_loopback()
    signals: list[signal.Signals] = []
    with on_stop_signal(signals.append):
        for n_restarts in range(MAX_RESTARTS + 1):
            listener = socket.create_server((LOOPBACK, 0))
            port = listener.getsockname()[1]
            store = dist.TCPStore(  # type: ignore[attr-defined]
                LOOPBACK,
                port,
                None,
                True,
                wait_for_workers=False,
                master_listen_fd=listener.detach(),
            )
            codes = _wait(_start(n_processes, arguments, port), signals)
            if signals:
                raise AlreadyReported(128 + signals[0])
            if max(codes) >= FIRST_STOP:
                raise AlreadyReported(max(codes))
            if not any(codes):
                return
            cause = _cause(codes, store)
            if not store.check([TRAINED]) or n_restarts == MAX_RESTARTS:
                break
            warn(f"{cause}; restart {n_restarts + 1} of {MAX_RESTARTS}, from the last checkpoint")
    if "SIGKILL" in cause:
        cause += "; if memory is short, pass fewer --processes or a lower --max-tokens"
    raise UserError(f"{cause}; the same command resumes from the last checkpoint")


def _check_loopback() -> None:
    """Raise a UserError unless this machine reaches itself: torch would wait for minutes."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), CONNECT_WITHIN_S),
        ):
            pass
    except OSError as error:
        raise UserError(
            f"the processes of --processes connect to one another at {LOOPBACK}, which cannot be "
            f"reached ({error.strerror or error}); enable the loopback interface (`ip link set lo "
            "up`), or omit --processes"
        ) from None


def _start(n_processes: int, arguments: Sequence[str], port: int) -> list[subprocess.Popen[bytes]]:
    """Start processes that meet at `port`.

    The user's variables about threads and networks take precedence.
    """
    variables = {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // n_processes))}
    for _, interface in socket.if_nameindex():
        if interface in LOOPBACK_INTERFACES:
            variables["GLOO_SOCKET_IFNAME"] = interface
            variables["NCCL_SOCKET_IFNAME"] = f"={interface}"
    variables |= os.environ
    variables["WORLD_SIZE"] = str(n_processes)
    variables["MASTER_ADDR"] = LOOPBACK
    variables["MASTER_PORT"] = str(port)
    variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    variables[AGENT] = str(os.getpid())
    processes: list[subprocess.Popen[bytes]] = []
    for rank in range(n_processes):
        variables["RANK"] = variables["LOCAL_RANK"] = str(rank)
        try:
            process = subprocess.Popen(  # noqa: S603 - nmtkit itself
                nmtkit_command(*arguments),
                env=variables,
                start_new_session=True,  # Ctrl-C comes to this process, which passes it on once
            )
        except OSError as error:
            for started in processes:
                started.kill()
                started.wait()
            raise UserError(
                f"training process {rank} could not be started ({error.strerror or error}); pass "
                f"--processes {max(1, rank)}, or allow more processes (`ulimit -u`) or memory"
            ) from None
        processes.append(process)
    return processes


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], signals: Sequence[signal.Signals]
) -> list[int]:
    """Wait for all processes, and stop the others if one of them is lost.

    Args:
        processes: The training processes, by rank.
        signals: The signal that this process received, to be passed on; at first none.

    Returns:
        Their exit codes; negative for the number of a signal.
    """
    is_stopping = False
    deadline = float("inf")
    while None in (codes := [process.poll() for process in processes]):
        is_lost = any(code and code < FIRST_STOP for code in codes)
        if is_lost:
            deadline = min(deadline, time.monotonic() + END_WITHIN_S)
        if (signals or is_lost) and not is_stopping:
            is_stopping = True  # a second signal would end a process at once
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
    """Return what went wrong first, or raise AlreadyReported if a process has printed it."""
    if 1 in codes:
        raise AlreadyReported(1)
    for rank, code in enumerate(codes):
        if -code in DEADLY:
            return f"training process {rank} was ended by {signal.Signals(-code).name}"
    if store.check([ERROR]):
        return str(store.get(ERROR), "utf-8")
    return f"a training process was lost (exit codes {', '.join(map(str, codes))})"
