"""Our own engine: the model and the search in torch."""

from bisect import bisect
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import accumulate
from threading import Event
from typing import TypeVar

import torch
from torch import Tensor

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID, UNK_ID
from nmtkit.decoding.beam_search import StepModel, beam_search
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.engine import (
    DIVERGED,
    Engine,
    ForcedDecoding,
    Hypothesis,
    Sampling,
    Sentences,
)
from nmtkit.decoding.forced import force_ids, log_mean_probability, pack
from nmtkit.decoding.sampling import sample
from nmtkit.decoding.text_translator import max_subwords
from nmtkit.fast.accelerate import accelerate, cast
from nmtkit.fast.incremental import IncrementalDecoder
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import load_weights
from nmtkit.utils.errors import Advance, DivergedError, UserError, is_out_of_memory

BATCH_ROWS = {"cpu": 1_536, "cuda": 4_096}  # sentences times beams
BATCH_TOKENS = {"cpu": 8_192, "cuda": 32_768}  # of the source, padding included, to save memory
# Minimum number of sentences in a batch of a thread: with fewer, threads mostly wait for the
# interpreter's lock.
MIN_SENTENCES = 16
# Sentences times beams that make up a batch even if other threads then wait for its end.
MIN_ROWS = 384

Result = TypeVar("Result")


class TorchEngine(Engine):
    """One model, or an ensemble, in torch."""

    name = "torch"

    def __init__(self, models: Sequence[Transformer], n_tokens: int) -> None:
        """Run models.

        Args:
            models: Accelerated models on one device.
            n_tokens: Size of the vocabulary; further rows of the embeddings are padding.
        """
        self.models = [model.eval() for model in models]
        self._device = models[0].output_matrix.device
        self.device = self._device.type
        # Deviation: the paper's published code (tensor2tensor at 3d9c62f2) forbids no token.
        self._forbidden = []
        for model in models:
            padding = range(n_tokens, len(model.output_matrix))
            ids = torch.tensor([PAD_ID, BOS_ID, UNK_ID, *padding], device=self._device)
            self._forbidden.append(ids)

    @classmethod
    def load(
        cls, bundles: Sequence[Bundle], device: torch.device, dtype: torch.dtype = torch.float32
    ) -> "TorchEngine":
        """Load the model of a bundle, or those of an ensemble.

        Args:
            bundles: One bundle, or several with the same vocabulary.
            dtype: Data type of weights and activations.
        """
        models = [cast(accelerate(load_model(bundle, device)), dtype) for bundle in bundles]
        return cls(models, bundles[0].text.subword.n_tokens)

    def translate(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, advance: Advance
    ) -> list[list[Hypothesis]]:
        """Translate sentences, as specified by `Engine.translate`.

        On a CPU, every core works on a batch of its own.
        """
        lengths = [len(ids) for ids in sources]
        queue = SentenceQueue(lengths, decoding.beam_size, self._device)

        def search(numbers: list[int], stopping: Event) -> list[list[Hypothesis]]:
            return self._search([sources[i] for i in numbers], decoding, n_best, stopping)

        best: list[list[Hypothesis]] = [[]] * len(sources)
        # Closing the generator stops the threads, also after an error or an interrupt.
        with closing(search_batches(search, queue)) as batches:
            for numbers, found in batches:
                for i, hypotheses in zip(numbers, found, strict=True):
                    if not hypotheses:
                        raise DivergedError(DIVERGED)
                    best[i] = hypotheses
                advance(len(numbers))
        return best

    def sample(
        self, sources: Sentences, decoding: DecodingConfig, sampling: Sampling, advance: Advance
    ) -> list[Hypothesis]:
        """Draw translations, as specified by `Engine.sample`."""
        queue = SentenceQueue([len(ids) for ids in sources], 1, self._device)

        @torch.inference_mode()
        def draw(numbers: list[int], stopping: Event) -> list[Hypothesis | None]:
            batch = [sources[i] for i in numbers]
            return sample(self._start(batch, stopping), batch, decoding, sampling, self._device)

        results: dict[int, Hypothesis] = {}
        with closing(search_batches(draw, queue)) as batches:
            for numbers, drawn in batches:
                for i, hypothesis in zip(numbers, drawn, strict=True):
                    if hypothesis is None:
                        raise DivergedError(DIVERGED)
                    results[i] = hypothesis
                advance(len(numbers))
        return [results[i] for i in range(len(sources))]

    @torch.inference_mode()
    def _search(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, stopping: Event
    ) -> list[list[Hypothesis]]:
        """Search for the hypotheses of a batch.

        Args:
            sources: Ids of the sentences, with EOS.
            decoding: Beam size, length penalty and maximum length.
            n_best: Maximum number of hypotheses per sentence.
            stopping: The search is cancelled when it is set.

        Returns:
            The hypotheses by sentence, best first; none if the model returns NaN.
        """
        lengths = torch.tensor([len(ids) - 1 for ids in sources], device=self._device)
        return beam_search(self._start(sources, stopping), lengths, decoding, n_best)

    def _start(self, sources: Sentences, stopping: Event) -> "_Ensemble":
        """Encode the sources of a batch, for models that predict their translations.

        Args:
            sources: Ids of the sentences, with EOS.
            stopping: The models are stopped when it is set.
        """
        src, layout = pack(sources, self._device)
        decoders = []
        for model, forbidden in zip(self.models, self._forbidden, strict=True):
            memory = model.encode(src, layout)
            decoders.append(IncrementalDecoder(model, memory, layout, forbidden))
        return _Ensemble(decoders, stopping)

    def force(self, sources: Sentences, targets: Sentences, *, align: bool) -> list[ForcedDecoding]:
        """Compute log-probabilities, as specified by `Engine.force`."""
        return force_ids(self.models, sources, targets, align=align)


class _Ensemble:
    """A `StepModel` of one or several models for the same sentences, until it is stopped."""

    def __init__(self, models: Sequence[StepModel], stopping: Event) -> None:
        """Search with `models` until `stopping` is set."""
        self._models = models
        self._stopping = stopping

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append tokens, as specified by `StepModel.step`: probabilities are averaged."""
        if self._stopping.is_set():
            raise CancelledError
        parts = zip(*[model.step(tokens) for model in self._models], strict=True)
        return map(log_mean_probability, parts)

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep some of the sentences and beams, as specified by `StepModel.reorder`."""
        for model in self._models:
            model.reorder(sentences, beams)


def load_model(bundle: Bundle, device: torch.device) -> Transformer:
    """Build the model of a bundle on a device, and load its verified weights."""
    weights = bundle.verified_weights()
    config = bundle.description.config
    # Sinusoids exist for any length: a table for the longest source is enough.
    if config.positions != "learned":
        config = config.model_copy(update={"max_positions": max_subwords(config)})
    with torch.device(device):
        model = Transformer(config, bundle.description.n_rows)
    load_weights(model, weights)
    return model


# Batches of sentences of similar lengths, and the threads that search them


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
