"""Data-parallel training: the group of processes, their sums, and the end of a group.

A process computes some micro-batches of an update, and the gradients are summed. The number of
processes changes an update only by rounding, and by dropout masks if it changes the micro-batches.
`launch.py` or torchrun starts the processes, which find one another by environment variables and a
key-value store.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# Otherwise torch's compiler would import it once there is a group. Its default arguments would keep
# the group, whose threads then abort the process as it exits.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from nmtkit.utils.errors import (
    AlreadyReported,
    RestartNeeded,
    Stopped,
    UserError,
    is_out_of_memory,
)
from nmtkit.utils.interrupts import AGENT
from nmtkit.utils.processes import NO_CUDA_GRAPHS

# Of a collective operation. The others wait while the first process evaluates and saves.
TIMEOUT = timedelta(minutes=30)
LOST = os.EX_TEMPFAIL  # exit code of a process that may have lost another one
UNSET_RANK = "let torchrun set these environment variables, or unset RANK to train in one process"
MAX_ERROR_LINES = 6  # of an error of torch; NCCL has the cause in the last of four
MAX_PROCESSES = 2**20
MAX_PORT = 65_535
# Keys of the store:
FAILED = "nmtkit/failed"  # number of processes that ended with an error of their own
REASON = "nmtkit/reason"  # the first of these errors
PRINTED = "nmtkit/printed"  # number of processes of a machine that had such an error, by machine
ERROR = "nmtkit/error"  # the error of torch in the first process that failed
TRAINED = "nmtkit/trained"  # steps were trained: a lost process is worth a restart


@dataclass(frozen=True)
class Group:
    """The processes that train together, as seen by one of them.

    All processes must call a method that sums, gathers, copies or waits.
    """

    rank: int
    size: int
    device: torch.device
    store: "dist.Store | None" = None  # type: ignore[name-defined]

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def sum_(self, values: Tensor) -> None:
        """Replace `values` by their sum over all processes."""
        if self.size > 1:
            dist.all_reduce(values)

    def gather(self, value: float) -> list[float]:
        """Return the `value` of every process, by rank."""
        # The sum of tensors that are zero at the places of the other processes.
        values = torch.zeros(self.size, dtype=torch.float64)
        values[self.rank] = value
        self.sum_(values)
        return values.tolist()

    def any(self, flag: bool) -> bool:
        """Return whether any process has the `flag`."""
        return any(self.gather(flag))

    def min(self, value: float) -> float:
        """Return the smallest `value` of all processes."""
        return min(self.gather(value))

    def first(self, value: float) -> float:
        """Return the `value` of the first process; those of the others are ignored."""
        return self.gather(value)[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        # A collective operation ends when all processes have called it.
        self.any(False)

    def mark_trained(self) -> None:
        """Record that steps were trained: a lost process is worth a restart."""
        if self.store is not None:
            self.store.set(TRAINED, "")

    def copy_from_first(self, model: nn.Module) -> None:
        """Copy the parameters of the first process to all others."""
        if self.size > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), 0)

    def check_same(self, name: str, value: int, remedy: str) -> None:
        """Check that all processes have the same value.

        Args:
            name: The name of the value, for the message.
            value: The value of this process, below 2**53.
            remedy: Settings that must be the same on all machines, for the message.

        Raises:
            UserError: They do not.
        """
        values = self.gather(value)
        if set(values) != {value}:
            found = ", ".join(f"{number:.0f}" for number in values)
            raise UserError(
                f"the processes differ in {name} ({found}); use the same {remedy} on all machines"
            )


def is_worker() -> bool:
    """Return whether this process is one of several that `launch` or torchrun started.

    Raises:
        UserError: SLURM itself started several, which cannot find one another.
    """
    if "RANK" in os.environ:
        return True
    n_tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if n_tasks == "1":
        return False
    # Only the first of them prints the error.
    if os.environ.get("SLURM_PROCID") != "0":
        raise AlreadyReported(1)
    raise UserError(
        f"srun started this command {n_tasks} times (SLURM_STEP_NUM_TASKS), but not as a group; "
        "start torchrun once per machine, as in nmtkit/training/README.md, or use `srun -n 1`"
    )


@contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """Join the processes that were started together; without others, return a group of one.

    An error of nmtkit is printed once on each machine, by the first process that has it. An error
    of torch may mean that another process was lost: it is left to the process that started this
    one, which reads it from the store or from torchrun's file.

    Args:
        device: The device of the settings. Of several GPUs, a process takes one.

    Raises:
        UserError: The processes cannot find one another.
        AlreadyReported: The error is or will be printed by another process.
    """
    if not is_worker():
        yield Group(0, 1, device)
        return
    size = _number("WORLD_SIZE", 1, MAX_PROCESSES)
    rank = _number("RANK", 0, size - 1)
    if device.type == "cuda":
        device = torch.device("cuda", _number("LOCAL_RANK", 0, torch.cuda.device_count() - 1))
        torch.cuda.set_device(device)
    store = _connect()
    # A process failed with an error of its own before torchrun restarted them all: another attempt
    # would fail in the same way.
    if store.check([FAILED]):
        _raise_reason(store)
    leave_group = True
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=_round_store(store),
            rank=rank,
            world_size=size,
            timeout=TIMEOUT,
        )
        yield Group(rank, size, device, store)
    except (AlreadyReported, RestartNeeded, Stopped):
        raise
    except Exception as error:
        leave_group = device.type == "cpu"  # NCCL could wait for the others
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            with suppress(RuntimeError):  # the process that serves the store may be gone
                if store.check([FAILED]):  # another process, which this one then lost
                    _raise_reason(store)
            _record(error, rank, store)
            raise AlreadyReported(LOST) from error
        with suppress(RuntimeError):  # the process that serves the store may be gone
            store.compare_set(REASON, "", str(error) or type(error).__name__)
            store.add(FAILED, 1)
            _raise_if_printed(store)
        raise
    finally:
        if leave_group and dist.is_initialized():
            dist.destroy_process_group()


def _raise_reason(store: "dist.Store") -> None:  # type: ignore[name-defined]
    """Raise the error of another process, unless a process of this machine prints it."""
    _raise_if_printed(store)
    raise UserError(str(store.get(REASON), "utf-8")) from None


def _raise_if_printed(store: "dist.Store") -> None:  # type: ignore[name-defined]
    """Raise AlreadyReported if another process of this machine prints the error.

    Processes that wait are then stopped, and restarted ones exit at once.
    """
    machine = os.environ.get("GROUP_RANK", "0")  # its number, from torchrun
    if store.add(f"{PRINTED}/{machine}", 1) > 1:
        raise AlreadyReported(1) from None


def _record(error: RuntimeError, rank: int, store: "dist.Store") -> None:  # type: ignore[name-defined]
    """Record an error of torch for the process that started this one.

    Raises:
        UserError: Nothing started this process that could read the error.
    """
    # What follows is the C++ stack.
    lines = str(error).split("\nException raised from")[0].split("\n")
    message = f"training process {rank} failed: {' '.join(lines[:MAX_ERROR_LINES])}"
    if AGENT not in os.environ and "TORCHELASTIC_ERROR_FILE" not in os.environ:
        raise UserError(f"{message}; the same commands resume from the last checkpoint") from error
    get_error_handler().record_exception(error)
    with suppress(RuntimeError):  # the process that serves the store may be gone
        store.compare_set(ERROR, "", message)


def _connect() -> "dist.Store":  # type: ignore[name-defined]
    """Connect to the store of all processes. The first one serves it if no agent does."""
    _number("MASTER_PORT", 1, MAX_PORT)
    try:
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
    except (ValueError, dist.DistError) as error:  # DistStoreError: the others did not come
        address = os.environ.get("MASTER_ADDR", "not set")
        reason = str(error).split("\n")[0]
        raise UserError(
            f"RANK is set, but no connection is possible with MASTER_ADDR = {address!r} "
            f"({reason}); {UNSET_RANK}"
        ) from None
    return store


def _round_store(store: "dist.Store") -> "dist.Store":  # type: ignore[name-defined]
    """Return the part of a store that has no entries of processes before a restart.

    Raises:
        UserError: There are several machines. Each of them counts its own restarts.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store  # served by the first process, and as new as that one
    is_restarted = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1" and is_restarted:
        raise UserError(
            "torchrun shares one store between restarts, so processes of several machines could "
            "not reconnect after a failure; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all "
            "machines, or pass --max-restarts=0 to torchrun"
        )
    prefix = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if NO_CUDA_GRAPHS in os.environ:  # all processes of the round have restarted themselves
        prefix += "-without-graphs"
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]


def _number(name: str, minimum: int, maximum: int) -> int:
    """Return a whole number from an environment variable of torchrun.

    Raises:
        UserError: It is not set, or not a number from `minimum` to `maximum`.
    """
    value = os.environ.get(name, "not set")
    if not value.isdecimal() or not minimum <= int(value) <= maximum:
        raise UserError(
            f"RANK is set, but {name} is {value!r}, not a whole number from {minimum} to "
            f"{maximum:,}; {UNSET_RANK}"
        )
    return int(value)
