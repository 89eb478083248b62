"""Batches of sentences of like length, each searched by a thread on a core of its own."""

from bisect import bisect
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import accumulate
from threading import Event
from typing import TypeVar

import torch

from nmtkit.utils.errors import UserError, is_out_of_memory

BATCH_ROWS = {"cpu": 1_536, "cuda": 4_096}  # sentences times beams
BATCH_TOKENS = {"cpu": 8_192, "cuda": 32_768}  # of the source, padding included, to save memory
MIN_SENTENCES = 16  # in a batch of a thread's own: with fewer, threads wait for each other's Python
MIN_ROWS = 384  # sentences times beams worth a batch, even if other threads wait for its end

Result = TypeVar("Result")


class Waiting:
    """The sentences that wait to be translated, the longest first."""

    def __init__(self, lengths: Sequence[int], beam_size: int, device: torch.device) -> None:
        self._lengths, self._beam_size, self._device = lengths, beam_size, device
        self.numbers = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        self._max_sentences = max(1, BATCH_ROWS[device.type] // beam_size)
        self._max_tokens = BATCH_TOKENS[device.type]
        n_threads = torch.get_num_threads() if device.type == "cpu" else 1
        self.n_threads = max(1, min(n_threads, len(lengths) // MIN_SENTENCES))
        quarter = len(lengths) // (4 * self.n_threads)
        self._min_sentences = max(MIN_SENTENCES, min(MIN_ROWS // beam_size, quarter))

    def take(self) -> list[int]:
        """Take the longest, at most a thread's share, so that all threads end at about one time."""
        lengths = [self._lengths[i] for i in self.numbers]
        n_fit = self._max_tokens // lengths[0]
        share = bisect(list(accumulate(lengths)), sum(lengths) / self.n_threads)
        n = max(1, min(self._max_sentences, n_fit, max(share, self._min_sentences)))
        taken = self.numbers[:n]
        del self.numbers[:n]
        return taken

    def put_back(self, numbers: list[int]) -> None:
        """Put back a batch that did not fit into memory, and make smaller ones from now on."""
        longest = self._lengths[numbers[0]]
        if len(numbers) == 1:
            raise UserError(
                f"{self._device} has too little memory to translate {longest:,} tokens with "
                f"beam_size = {self._beam_size:,}; free memory, or lower [decoding] beam_size"
            )
        self._max_tokens = min(self._max_tokens, longest * len(numbers) // 2)
        self.numbers[:0] = numbers


def searched(
    search: Callable[[list[int], Event], Result], waiting: Waiting
) -> Generator[tuple[list[int], Result], None, None]:
    """Yield the numbers of each batch and what `search` finds, whose event is set at the end."""
    stopping = Event()

    def search_if_fits(numbers: list[int]) -> Result | None:
        try:
            return search(numbers, stopping)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None  # rather than an exception, which would keep what is in memory

    running: dict[Future[Result | None], list[int]] = {}
    n_cores = torch.get_num_threads()
    # Each thread computes on one core: two cores for the same products are slower.
    pool = ThreadPoolExecutor(waiting.n_threads, "", torch.set_num_threads, (1,))
    try:
        while waiting.numbers or running:
            while waiting.numbers and len(running) < waiting.n_threads:
                numbers = waiting.take()
                running[pool.submit(search_if_fits, numbers)] = numbers
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                numbers = running.pop(future)
                found = future.result()
                if found is None:
                    waiting.put_back(numbers)
                else:
                    yield numbers, found
    finally:
        stopping.set()
        pool.shutdown()
        torch.set_num_threads(n_cores)
