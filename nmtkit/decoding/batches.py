"""Batches of sentences of similar lengths, and the threads that search them."""

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
# Minimum number of sentences in a batch of a thread: with fewer, threads mostly wait for the
# interpreter's lock.
MIN_SENTENCES = 16
# Sentences times beams that make up a batch even if other threads then wait for its end.
MIN_ROWS = 384

Result = TypeVar("Result")


class SentenceQueue:
    """The sentences that are still to be translated, the longest first."""

    def __init__(self, lengths: Sequence[int], beam_size: int, device: torch.device) -> None:
        """Queue sentences by their lengths.

        Args:
            lengths: Numbers of source tokens.
        """
        self._lengths = lengths
        self._beam_size = beam_size
        self._device = device
        self.numbers = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        self._max_sentences = max(1, BATCH_ROWS[device.type] // beam_size)
        self._max_tokens = BATCH_TOKENS[device.type]
        n_threads = torch.get_num_threads() if device.type == "cpu" else 1
        self.n_threads = max(1, min(n_threads, len(lengths) // MIN_SENTENCES))
        # Threads end at about the same time if they have several batches.
        quarter = len(lengths) // (4 * self.n_threads)
        self._min_sentences = max(MIN_SENTENCES, min(MIN_ROWS // beam_size, quarter))

    def take(self) -> list[int]:
        """Remove and return a batch of the longest sentences.

        It is limited to a thread's share of the tokens: all threads end at about the same time.
        """
        lengths = [self._lengths[i] for i in self.numbers]
        n_that_fit = self._max_tokens // lengths[0]
        n_in_share = bisect(list(accumulate(lengths)), sum(lengths) / self.n_threads)
        n_wanted = max(n_in_share, self._min_sentences)
        n = max(1, min(self._max_sentences, n_that_fit, n_wanted))
        taken = self.numbers[:n]
        del self.numbers[:n]
        return taken

    def put_back(self, numbers: list[int]) -> None:
        """Put back a batch that did not fit into memory, and halve the size of batches.

        Raises:
            UserError: The batch is a single sentence.
        """
        longest = self._lengths[numbers[0]]
        if len(numbers) == 1:
            raise UserError(
                f"{self._device} has too little memory to translate {longest:,} tokens with "
                f"beam_size = {self._beam_size:,}; free memory, or lower [decoding] beam_size"
            )
        self._max_tokens = min(self._max_tokens, longest * len(numbers) // 2)
        self.numbers[:0] = numbers


def search_batches(
    search: Callable[[list[int], Event], Result], queue: SentenceQueue
) -> Generator[tuple[list[int], Result], None, None]:
    """Search all sentences, batch by batch, in several threads.

    Args:
        search: Searches sentences, by their numbers. It ends early if its event is set, because the
            caller needs no further results.

    Yields:
        The numbers of the sentences of a batch, and the result of their search.
    """
    stopping = Event()

    def search_if_fits(numbers: list[int]) -> Result | None:
        try:
            return search(numbers, stopping)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            # The exception is dropped here, since its frames would keep the memory in use.
            return None

    running: dict[Future[Result | None], list[int]] = {}
    n_cores = torch.get_num_threads()
    # A thread computes on one core: two cores for the same small products are slower.
    pool = ThreadPoolExecutor(queue.n_threads, "", torch.set_num_threads, (1,))
    try:
        while queue.numbers or running:
            while queue.numbers and len(running) < queue.n_threads:
                numbers = queue.take()
                running[pool.submit(search_if_fits, numbers)] = numbers
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                numbers = running.pop(future)
                result = future.result()
                if result is None:
                    queue.put_back(numbers)
                else:
                    yield numbers, result
    finally:
        stopping.set()
        pool.shutdown()
        torch.set_num_threads(n_cores)
