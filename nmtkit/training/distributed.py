"""Data-parallel training: the group of processes, their gradient sums, and how they end together.

Each process computes some micro-batches of an update, and the gradients are summed: the number of
processes changes an update by rounding, and dropout by other masks where it changes the
micro-batches. `launch.py` or torchrun starts them, and tells them of one another in environment
variables and in a store.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

# By torch's compiler, it would be imported once there is a group. Its default arguments would keep
# the group, whose threads then abort the process as it exits.
import torch.distributed.nn.functional
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import get_error_handler
from torch.distributed.rendezvous import rendezvous

from nmtkit.training.signals import AGENT, NO_CUDA_GRAPHS
from nmtkit.utils.errors import (
    AlreadyReported,
    RestartNeeded,
    Stopped,
    UserError,
    is_out_of_memory,
)

TIMEOUT = timedelta(minutes=30)  # of a process that hangs; the first one evaluates and saves
LOST = os.EX_TEMPFAIL  # exit code of a process that may have lost another one
UNSET_RANK = "let torchrun set these environment variables, or unset RANK to train in one process"
MOST_LINES = 6  # of torch's error; NCCL tells what happened in the last of four
# In the store of all processes:
FAILED = "nmtkit/failed"  # how many ended with an error of their own
ERROR = "nmtkit/error"  # what torch said to the first one that failed
TRAINED = "nmtkit/trained"  # steps were done, so that a lost process is worth a restart


@dataclass(frozen=True)
class Group:
    """The processes that train together, as seen by one of them."""

    rank: int
    size: int
    device: torch.device
    store: "dist.Store | None" = None  # type: ignore[name-defined]

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and messages."""
        return self.rank == 0

    def sum_(self, values: Tensor) -> None:
        if self.size > 1:
            dist.all_reduce(values)

    def gather(self, value: float) -> list[float]:
        """Return the `value` of every process, by rank."""
        values = torch.zeros(self.size, dtype=torch.float64)
        values[self.rank] = value
        self.sum_(values)
        return values.tolist()

    def any(self, flag: bool) -> bool:
        return any(self.gather(flag))

    def least(self, value: float) -> float:
        return min(self.gather(value))

    def first(self, value: float) -> float:
        """Return the `value` of the first process; those of the others are ignored."""
        return self.gather(value)[0]

    def wait(self) -> None:
        self.any(False)

    def mark_trained(self) -> None:
        """Record that steps were done, so that a lost process is worth a restart."""
        if self.store is not None:
            self.store.set(TRAINED, "")

    def copy_first(self, model: nn.Module) -> None:
        if self.size > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), 0)

    def check_same(self, what: str, value: int, same: str) -> None:
        """Wait for all processes; if they differ in `value`, raise a UserError: use the `same`."""
        values = self.gather(value)
        if {*values} != {value}:
            seen = ", ".join(f"{each:.0f}" for each in values)
            raise UserError(
                f"the processes differ in {what} ({seen}); use the same {same} on all machines"
            )


def is_worker() -> bool:
    """Whether this process is one of several that `launch` or torchrun started.

    Raises:
        UserError: SLURM alone started several, which know nothing of one another.
    """
    n_tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if "RANK" in os.environ or n_tasks == "1":
        return "RANK" in os.environ
    if os.environ.get("SLURM_PROCID") != "0":
        raise AlreadyReported(1)
    raise UserError(
        f"srun started this command {n_tasks} times (SLURM_STEP_NUM_TASKS), each on its own; start "
        "torchrun once a machine, as in nmtkit/training/README.md, or use `srun -n 1`"
    )


@contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """Join the processes that were started together, or be the only one if none were.

    An error is told once, by the first process that has it. One of torch may be the loss of another
    process: whoever started them tells the first, from the store or torchrun's file.
    """
    if not is_worker():
        yield Group(0, 1, device)
        return
    size = _number("WORLD_SIZE", 1, 2**20)
    rank = _number("RANK", 0, size - 1)
    if device.type == "cuda":
        device = torch.device("cuda", _number("LOCAL_RANK", 0, torch.cuda.device_count() - 1))
        torch.cuda.set_device(device)
    store = _store()
    if store.check([FAILED]):  # in a round before this one
        raise AlreadyReported(1)
    may_end = True
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=_of_this_round(store),
            rank=rank,
            world_size=size,
            timeout=TIMEOUT,
        )
        yield Group(rank, size, device, store)
    except (AlreadyReported, RestartNeeded, Stopped):
        raise
    except Exception as error:
        may_end = device.type == "cpu"  # NCCL could wait for the others
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            lines = str(error).split("\nException raised from")[0].split("\n")
            what = f"training process {rank} failed: {' '.join(lines[:MOST_LINES])}"
            if AGENT not in os.environ and "TORCHELASTIC_ERROR_FILE" not in os.environ:
                raise UserError(
                    f"{what}; the same commands resume from the last checkpoint"
                ) from error
            get_error_handler().record_exception(error)
            with suppress(RuntimeError):  # the process that serves the store may be gone
                store.compare_set(ERROR, "", what)
            raise AlreadyReported(LOST) from error
        with suppress(RuntimeError):
            if store.add(FAILED, 1) > 1:  # those that wait are ended; new ones end at once
                raise AlreadyReported(1) from None
        raise
    finally:
        if may_end and dist.is_initialized():
            dist.destroy_process_group()


def _store() -> "dist.Store":  # type: ignore[name-defined]
    """Connect to the store, or serve it where no agent does."""
    _number("MASTER_PORT", 1, 65_535)
    try:
        return next(rendezvous("env://", timeout=TIMEOUT))[0]
    except (ValueError, dist.DistError) as error:  # DistStoreError: the others did not come
        address, why = os.environ.get("MASTER_ADDR", "not set"), str(error).split("\n")[0]
        raise UserError(
            f"RANK is set, and MASTER_ADDR is {address!r}, of no use ({why}); {UNSET_RANK}"
        ) from None


def _of_this_round(store: "dist.Store") -> "dist.Store":  # type: ignore[name-defined]
    """Return the part of `store` without stale entries of processes before a restart."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store  # of the first process, and as new as it is
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":  # each machine counts its own restarts
        raise UserError(
            "torchrun keeps one store in all rounds, and processes of several machines could not "
            "meet again after a loss; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on each machine"
        )
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if NO_CUDA_GRAPHS in os.environ:  # all processes of the round have started again
        count += "-without-graphs"
    return dist.PrefixStore(count, store)  # type: ignore[attr-defined]


def _number(name: str, least: int, most: int) -> int:
    said = os.environ.get(name, "not set")
    if not said.isdecimal() or not least <= int(said) <= most:
        raise UserError(
            f"RANK is set, and {name} is {said!r} in place of a whole number from {least} to "
            f"{most:,}; {UNSET_RANK}"
        )
    return int(said)
