"""Start and watch training processes on one machine, and restart them if one of them is lost.

They communicate only over the loopback interface, and nothing from their store is unpickled.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist

from nmtkit.training.distributed import ERROR, FAILED, LOST, TRAINED
from nmtkit.utils import progress
from nmtkit.utils.errors import AlreadyReported, Stopped, UserError
from nmtkit.utils.interrupts import AGENT
from nmtkit.utils.processes import nmtkit_command, on_stop_signal

MAX_RESTARTS = 3  # of a lost process
POLL_EVERY_S = 0.1
# After the loss of a process, the others have some time to print an error of their own before they
# are stopped, and to exit before they are killed.
GRACE_S = 3.0
EXIT_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0  # to an address of this machine
FIRST_STOP = 129  # lowest exit code of a process that a signal stopped: 128 + the signal
# Signals that kill a single process: the others lose it.
FATAL_SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS)
LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACES = ("lo", "lo0")  # Linux, macOS


def launch(n_processes: int, arguments: Sequence[str]) -> None:
    """Run `nmtkit ARGUMENTS` in several processes, restarted if one of them is lost.

    Args:
        arguments: Their command line, without `nmtkit`.

    Raises:
        UserError: The processes cannot start or meet; or one was lost before anything was trained,
            or too often.
        AlreadyReported: A process has printed its error, or the position at which it was stopped.
        Stopped: A signal came before or after training.
    """
    _check_loopback()
    signals: list[signal.Signals] = []
    with on_stop_signal(signals):
        for n_restarts in range(MAX_RESTARTS + 1):
            # A new store for every round: keys of the last one would mislead the next processes.
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
            # The first process prints no message if the signal comes before or after training.
            if signals and codes[0] <= 0:
                raise Stopped(
                    f"stopped by {signals[0].name}; to resume, rerun the same command",
                    exit_code=128 + signals[0],
                )
            if signals:
                raise AlreadyReported(128 + signals[0])
            if max(codes) >= FIRST_STOP:
                raise AlreadyReported(max(codes))
            if not any(codes):
                return
            cause = _cause(codes, store)
            if not store.check([TRAINED]) or n_restarts == MAX_RESTARTS:
                break
            progress.warn(
                f"{cause}; restart {n_restarts + 1} of {MAX_RESTARTS}, from the last checkpoint"
            )
    if "SIGKILL" in cause:
        cause += "; if memory ran out, lower --processes or --max-tokens"
    raise UserError(f"{cause}; the same command resumes from the last checkpoint")


def _check_loopback() -> None:
    """Raise a UserError unless this machine can connect to itself; torch would wait for minutes."""
    try:
        with (
            socket.create_server((LOOPBACK, 0)) as server,
            socket.create_connection(server.getsockname(), CONNECT_TIMEOUT_S),
        ):
            pass
    except OSError as error:
        raise UserError(
            f"the processes of --processes connect to one another at {LOOPBACK}, which cannot be "
            f"reached ({error.strerror or error}); enable the loopback interface (`ip link set lo "
            "up`), or omit --processes"
        ) from None


def _start(n_processes: int, arguments: Sequence[str], port: int) -> list[subprocess.Popen[bytes]]:
    """Start the training processes. The user's variables for threads and networks are kept.

    Args:
        arguments: Their command line, without `nmtkit`.
        port: Port of the store on the loopback interface.

    Raises:
        UserError: A process could not be started. Those before it are killed.
    """
    # Without this, every process would use all cores.
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
        variables["RANK"] = str(rank)
        variables["LOCAL_RANK"] = str(rank)
        try:
            process = subprocess.Popen(  # noqa: S603 - nmtkit itself
                nmtkit_command(*arguments),
                env=variables,
                # Ctrl-C reaches only this process. It passes the signal on once.
                start_new_session=True,
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
        signals: The signals that this process has received so far. The first is passed on.

    Returns:
        Their exit codes, by rank. A negative one is the number of a signal; LOST is the code of a
        process that had to be killed.
    """
    is_stopping = False
    loss_time = float("inf")
    while None in (codes := [process.poll() for process in processes]):
        now = time.monotonic()
        if any(code and code < FIRST_STOP for code in codes):
            loss_time = min(loss_time, now)
        if (signals or now > loss_time + GRACE_S) and not is_stopping:
            is_stopping = True  # a second signal would terminate a process without a checkpoint
            for process in processes:
                process.send_signal(signals[0] if signals else signal.SIGTERM)
        # They may wait for the lost one in a collective operation, for up to half an hour.
        if now > loss_time + EXIT_TIMEOUT_S:
            for process in processes:
                process.kill()
                process.wait()
            break
        time.sleep(POLL_EVERY_S)
    return [LOST if code is None else code for code in codes]


def _cause(codes: Sequence[int], store: "dist.TCPStore") -> str:  # type: ignore[name-defined]
    """Return the cause of a loss, for a message.

    Args:
        codes: The exit codes of the processes, by rank.
        store: The store of the processes. It may have an error of torch.

    Raises:
        AlreadyReported: A process has printed the cause.
    """
    # An error that a process has printed explains the loss of the others.
    if 1 in codes or store.check([FAILED]):
        raise AlreadyReported(1)
    for rank, code in enumerate(codes):
        if -code in FATAL_SIGNALS:
            return f"training process {rank} was killed by {signal.Signals(-code).name}"
    if store.check([ERROR]):
        return str(store.get(ERROR), "utf-8")
    return f"a training process exited (exit codes {', '.join(map(str, codes))})"
