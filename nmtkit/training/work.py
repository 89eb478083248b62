"""One process's share of an update, packed while the device is busy with earlier ones."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from nmtkit.fast.packing import Capacity
from nmtkit.training.batches import Batch, Pairs, Update, micro_batches, pack
from nmtkit.training.distributed import Group

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Work:
    """One process's share of an update."""

    step: int  # of the optimizer, from 1
    update: Update
    src_tokens: int  # of all processes
    tgt_tokens: int
    batches: list[tuple[int, Batch]]  # each with its index among those of all processes


def work_of(
    step: int,
    update: Update,
    pairs: Pairs,
    group: Group,
    *,
    max_tokens: int,
    capacity: Capacity | None,
) -> Work:
    """Split `update` into micro-batches, and pack those of this process on its device."""
    numbered = list(enumerate(micro_batches(pairs, update.pairs, max_tokens, capacity)))
    return Work(
        step,
        update,
        int(pairs.src_lengths[update.pairs].sum()),
        int(pairs.tgt_lengths[update.pairs].sum()),
        [
            (micro_step, pack(pairs, chosen, capacity).to(group.device))
            for micro_step, chosen in group.share(numbered)
        ],
    )


def ahead(items: Iterable[Item], make: Callable[[Item], Made], n_ahead: int = 2) -> Iterator[Made]:
    """Yield `make(item)` for each item in order, computed in a thread `n_ahead` items early.

    The device then does not wait for packing.
    """
    coming: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        for item in items:
            coming.append(pool.submit(make, item))
            if len(coming) > n_ahead:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
