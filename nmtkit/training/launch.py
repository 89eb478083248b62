"""Training processes on one machine: torchrun's agent starts, watches and ends them.

Unlike with torchrun's own rendezvous, nothing listens beyond the loopback interface, and nothing
that is found in a store is unpickled.
"""

import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Sequence

import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

from nmtkit.errors import AlreadyReported, UserError
from nmtkit.training.signals import AGENT, on_stop_signal

MAX_RESTARTS = 3  # of a lost process
LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACES = ("lo", "lo0")  # Linux, macOS


def launch(n_processes: int, arguments: Sequence[str]) -> None:
    """Run `nmtkit ARGUMENTS` in `n_processes` processes, started again if one of them is lost."""
    for name in logging.root.manager.loggerDict:  # each has its own level
        if name.startswith("torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what matters is reported below
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"  # the others are handled here
    os.environ[AGENT] = str(os.getpid())
    for _, interface in socket.if_nameindex():
        if interface in LOOPBACK_INTERFACES:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    spec = WorkerSpec(
        role="trainer",
        local_world_size=n_processes,
        rdzv_handler=_OneMachine(),
        entrypoint=sys.executable,
        args=("-m", "nmtkit", *arguments),
        max_restarts=MAX_RESTARTS,
        local_addr=LOOPBACK,
    )
    agent = LocalElasticAgent(spec, DefaultLogsSpecs(log_dir=os.devnull))
    try:
        with on_stop_signal(_pass_on):
            result = agent.run()
    except SignalException as stop:
        raise AlreadyReported(128 + stop.sigval) from None
    if not result.is_failed():
        return
    exit_codes = [failure.exitcode for failure in result.failures.values()]
    if 1 in exit_codes:
        raise AlreadyReported(1)
    killed = [signal.Signals(-code).name for code in exit_codes if code < 0]
    how = f"ended by {killed[0]}" if killed else f"lost (exit codes {sorted(set(exit_codes))})"
    raise UserError(
        f"a training process was {how}, {1 + MAX_RESTARTS} times; if the machine has too little "
        "memory, ask for fewer --processes or a lower --max-tokens; the same command "
        "resumes from the last checkpoint"
    )


def _pass_on(number: signal.Signals) -> None:
    raise SignalException(number.name, number)  # the agent sends it to the processes


class _OneMachine(StaticTCPRendezvous):
    """The rendezvous of a single agent, with a store on loopback for its processes."""

    def __init__(self) -> None:
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        super().__init__(LOOPBACK, port, rank=0, world_size=1, run_id=uuid.uuid4().hex, timeout=0)
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            LOOPBACK, port, None, True, wait_for_workers=False, master_listen_fd=listener.detach()
        )

    def next_rendezvous(self) -> RendezvousInfo:
        """Give the agent a store of its own, in memory."""
        of_processes = RendezvousStoreInfo(self.master_addr, self.master_port)
        return RendezvousInfo(dist.HashStore(), 0, 1, of_processes)  # type: ignore[attr-defined]
