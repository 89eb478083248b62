"""Data-parallel training: the group of processes, their gradient sums, and how they end together.

Each process computes some micro-batches of an update, and the gradients are summed: the number of
processes changes an update by rounding, and dropout by other masks where it changes the
micro-batches. torchrun tells of them in environment variables.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmtkit.errors import AlreadyReported, UserError, is_out_of_memory

TIMEOUT = timedelta(minutes=30)  # of a process that hangs; the first one evaluates and saves
LOST = 75  # exit code (EX_TEMPFAIL) of a process that lost another one and is not itself at fault
UNSET_RANK = "let torchrun set these environment variables, or unset RANK to train in one process"
FAILED = "nmtkit/failed"  # in torchrun's store, the number of processes that ended with a UserError


@dataclass(frozen=True)
class Group:
    """The processes that train together, as seen by one of them."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files and messages."""
        return self.rank == 0

    def sum_(self, values: Tensor) -> None:
        """Sum `values` over the processes, in place."""
        if self.size > 1:
            with _or_lost():
                dist.all_reduce(values)

    def gather(self, value: float) -> list[float]:
        """Return the `value` of every process, by rank."""
        values = torch.zeros(self.size, dtype=torch.float64)
        values[self.rank] = value
        self.sum_(values)
        return values.tolist()

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any process."""
        return any(self.gather(flag))

    def least(self, value: float) -> float:
        """Return the lowest `value` of all processes."""
        return min(self.gather(value))

    def first(self, value: float) -> float:
        """Return the `value` of the first process; those of the others are ignored."""
        return self.gather(value)[0]

    def wait(self) -> None:
        """Wait until all processes have reached this point."""
        self.any(False)

    def copy_first(self, model: nn.Module) -> None:
        """Copy the weights of the first process to all others."""
        if self.size > 1:
            with _or_lost():
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


class GradientSums:
    """The gradients of a model, summed over the micro-batches of an update and over a group."""

    def __init__(self, model: nn.Module, group: Group) -> None:
        self._model, self._group = model, group
        self._all: Tensor | None = None  # to be sent at once; a CUDA graph needs fixed addresses
        if group.size > 1 or group.device.type == "cuda":
            parameters = list(model.parameters())
            sizes = [parameter.numel() for parameter in parameters]
            self._all = parameters[0].new_zeros(sum(sizes), requires_grad=False)
            for parameter, part in zip(parameters, torch.split(self._all, sizes), strict=True):
                parameter.grad = part.view_as(parameter)

    def clear(self) -> None:
        """Begin an update."""
        if self._all is None:
            self._model.zero_grad()
        else:
            self._all.zero_()

    def finish(self) -> None:
        """End an update: sum over the processes."""
        if self._all is not None:
            self._group.sum_(self._all)

    def norm(self) -> Tensor:
        """Return the scalar Euclidean norm of all gradients; not finite if one of them is not."""
        gradients = [parameter.grad for parameter in self._model.parameters()]
        return nn.utils.get_total_norm([each for each in gradients if each is not None])


def is_worker() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ


@contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """Join the processes that torchrun started, or be the only one if it started none."""
    if not is_worker():
        yield Group(0, 1, device)
        return
    size = _number("WORLD_SIZE", 1, 2**20)
    rank = _number("RANK", 0, size - 1)
    n_restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", _number("LOCAL_RANK", 0, torch.cuda.device_count() - 1))
        torch.cuda.set_device(device)
    elif "OMP_NUM_THREADS" not in os.environ:
        n_here = _number("LOCAL_WORLD_SIZE", 1, size)
        torch.set_num_threads(max(1, torch.get_num_threads() // n_here))
    store = _store(rank)
    if store.check([FAILED]):
        raise AlreadyReported(1)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        # torchrun's store survives a restart, with stale entries of the processes before it.
        store=dist.PrefixStore(f"nmtkit/{n_restarts}", store),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
    )
    may_end = device.type == "cpu"  # after an error too; NCCL could wait for the others then
    try:
        yield Group(rank, size, device)
        may_end = True
    except (UserError, OSError):
        if store.add(FAILED, 1) > 1:  # torchrun ends those that wait; new ones end at once
            raise AlreadyReported(1) from None
        raise
    finally:
        if may_end:
            dist.destroy_process_group()


def _store(rank: int) -> dist.TCPStore:  # type: ignore[name-defined]
    """Connect to torchrun's store, or serve one where the agent does not."""
    address, port = os.environ.get("MASTER_ADDR"), _number("MASTER_PORT", 1, 65_535)
    if address is None:
        raise UserError(f"RANK is set, and MASTER_ADDR is not; {UNSET_RANK}")
    is_master = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=is_master, wait_for_workers=False, timeout=TIMEOUT
        )
    except dist.DistNetworkError as error:
        why = str(error).split("\n")[0]
        raise UserError(
            f"MASTER_ADDR {address!r} and MASTER_PORT {port} cannot be used ({why}); {UNSET_RANK}"
        ) from None


def _number(name: str, least: int, most: int) -> int:
    said = os.environ.get(name, "not set")
    if not said.isdecimal() or not least <= int(said) <= most:
        raise UserError(
            f"RANK is set, and {name} is {said!r} in place of a whole number from {least} to "
            f"{most:,}; {UNSET_RANK}"
        )
    return int(said)


@contextmanager
def _or_lost() -> Iterator[None]:
    """Exit without a message if another process is gone: torchrun reports which one, and why."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise AlreadyReported(LOST) from error
