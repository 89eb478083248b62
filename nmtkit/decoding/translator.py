"""Translation of token ids: beam search over batches of similar length."""

from bisect import bisect
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from itertools import accumulate
from threading import Event, Lock

import torch
from torch import Tensor

from nmtkit.decoding.beam_search import StepModel, beam_search
from nmtkit.decoding.engine import DIVERGED, Hypothesis
from nmtkit.decoding.ensemble import Ensemble
from nmtkit.errors import DivergedError, UserError, is_out_of_memory
from nmtkit.fast.packing import PackedLayout
from nmtkit.fast.step import IncrementalDecoder
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, PAD_ID, UNK_ID

# Sentences times beams in a batch.
BATCH_ROWS = {"cpu": 1_536, "cuda": 4_096}
# Source tokens in a batch, padding included: few sentences if they are long, to save memory.
BATCH_TOKENS = {"cpu": 8_192, "cuda": 32_768}
# Sentences that make a batch worth a thread of its own: with fewer, threads wait for each other's
# Python.
MIN_SENTENCES = 16
# Sentences times beams in a batch that is worth its steps, although other threads may have to wait
# for its end.
MIN_ROWS = 384

Found = list[list[Hypothesis]]  # of each sentence, best first


def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    *,
    n_tokens: int,
    n_best: int,
    progress: Callable[[int], None],
    others: Sequence[Transformer] = (),
) -> Found:
    """Translate sentences by beam search, as `Engine.translate` says.

    On a CPU, each core works on a batch of its own. If a batch does not fit into memory, it and all
    later batches are halved.

    Args:
        n_tokens: Size of the vocabulary. Rows of the output matrix beyond it are never produced.
        others: The other models of an ensemble.

    Raises:
        DivergedError: The model does not produce probabilities.
        UserError: A single sentence does not fit into memory.
    """
    device = model.output_matrix.device
    models = [each.eval() for each in (model, *others)]
    # Deviation: the paper's published code (tensor2tensor at 3d9c62f2) forbids none.
    forbidden = [
        torch.tensor([PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, len(each.output_matrix))]).to(device)
        for each in models
    ]

    @torch.inference_mode()
    def search(numbers: list[int], stopping: Event) -> Found:
        chosen = [sources[i] for i in numbers]
        src = torch.tensor([token for source in chosen for token in source], device=device)
        layout = PackedLayout.of_lengths([len(source) for source in chosen]).to(device)
        decoders = [
            IncrementalDecoder(each, each.encode(src, layout), layout, never)
            for each, never in zip(models, forbidden, strict=True)
        ]
        together = _Stoppable(decoders, stopping)
        return beam_search(together, layout.lengths - 1, decoding, n_best)

    waiting = _Waiting(sources, decoding.beam_size, device)
    best: Found = [[]] * len(sources)
    with closing(_in_threads(search, waiting)) as batches:
        for numbers, found in batches:
            for i, hypotheses in zip(numbers, found, strict=True):
                if not hypotheses:
                    raise DivergedError(DIVERGED)
                best[i] = hypotheses
            progress(len(numbers))
    return best


class _Waiting:
    """The sentences that wait to be translated."""

    def __init__(
        self, sources: Sequence[Sequence[int]], beam_size: int, device: torch.device
    ) -> None:
        self._lengths = [len(source) for source in sources]
        self._numbers = sorted(range(len(sources)), key=lambda i: -self._lengths[i])
        self._beam_size, self._device = beam_size, device
        self._max_sentences = max(1, BATCH_ROWS[device.type] // beam_size)
        self._max_tokens = BATCH_TOKENS[device.type]
        n_threads = torch.get_num_threads() if device.type == "cpu" else 1
        self.n_threads = max(1, min(n_threads, len(sources) // MIN_SENTENCES))
        quarter = len(sources) // (4 * self.n_threads)
        self._min_sentences = max(MIN_SENTENCES, min(MIN_ROWS // beam_size, quarter))

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._numbers)

    def take(self) -> list[int]:
        """Take the numbers of the sentences of the next batch, the longest that there are.

        Their tokens are at most a thread's share, so that all threads end at about the same time.
        The last batches would be of a few sentences each; these are not divided any further.
        """
        lengths = [self._lengths[i] for i in self._numbers]
        n_fit = self._max_tokens // lengths[0]
        share = bisect(list(accumulate(lengths)), sum(lengths) / self.n_threads)
        n = max(1, min(self._max_sentences, n_fit, max(share, self._min_sentences)))
        taken = self._numbers[:n]
        del self._numbers[:n]
        return taken

    def put_back(self, numbers: list[int]) -> None:
        """Put back a batch that did not fit into memory, and make smaller ones from now on.

        Raises:
            UserError: It was a single sentence.
        """
        longest = self._lengths[numbers[0]]
        if len(numbers) == 1:
            raise UserError(
                f"{self._device} has too little memory to translate {longest:,} tokens with "
                f"beam_size = {self._beam_size:,}; free memory, or lower [decoding] beam_size"
            )
        self._max_tokens = min(self._max_tokens, longest * len(numbers) // 2)
        self._numbers[:0] = numbers


def _in_threads(
    search: Callable[[list[int], Event], Found], waiting: _Waiting
) -> Generator[tuple[list[int], Found], None, None]:
    """Yield the numbers of the sentences of each batch, and what was found for them."""
    stopping = Event()

    def search_if_fits(numbers: list[int]) -> Found | None:
        try:
            return search(numbers, stopping)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None  # rather than an exception, which would keep what is in memory

    running: dict[Future[Found | None], list[int]] = {}
    with _SEARCHES.threads(waiting.n_threads) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < waiting.n_threads:
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


class _Searches:
    """Those that run at the same time, called from different threads.

    torch gives the number of cores that was set last, in whichever thread, to each thread that
    begins to use it. So what it was before must not be read while a search runs.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_running = 0
        self._n_cores = 0  # that torch uses when no search runs

    @contextmanager
    def threads(self, n: int) -> Iterator[ThreadPoolExecutor]:
        """Start `n` threads, each of which computes on one core; torch has all again afterwards.

        Two cores for the same products are slower than one.
        """
        with self._lock:
            if not self._n_running:
                self._n_cores = torch.get_num_threads()
            self._n_running += 1
        try:
            with ThreadPoolExecutor(n, "", torch.set_num_threads, (1,)) as pool:
                yield pool
        finally:
            with self._lock:
                self._n_running -= 1
                torch.set_num_threads(self._n_cores)


_SEARCHES = _Searches()


class _Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Nobody waits for the translations any more."""


class _Stoppable(Ensemble):
    """Models, one or several, that stop a search in the middle."""

    def __init__(self, models: Sequence[StepModel], stopping: Event) -> None:
        super().__init__(models)
        self._stopping = stopping

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        if self._stopping.is_set():
            raise _Stopped
        return super().step(tokens)
