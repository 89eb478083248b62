"""Our own engine: the model and the search in torch."""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from threading import Event

import torch
from torch import Tensor

from nmtkit.config.recipe import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID, UNK_ID
from nmtkit.decoding.batches import Waiting, searched
from nmtkit.decoding.beam_search import StepModel, beam_search
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.engine import DIVERGED, Engine, Forced, Hypothesis, Sentences
from nmtkit.decoding.forced import force_ids, log_mean_probability
from nmtkit.decoding.lines import max_subwords
from nmtkit.fast.accelerate import accelerate, cast
from nmtkit.fast.incremental import IncrementalDecoder
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import load_weights
from nmtkit.utils.errors import Advance, DivergedError


class TorchEngine(Engine):
    name = "torch"

    def __init__(self, models: Sequence[Transformer], n_tokens: int) -> None:
        """Take accelerated models on one device, whose vocabulary is the first `n_tokens` rows."""
        self.models = [model.eval() for model in models]
        self._device = models[0].output_matrix.device
        self.device = self._device.type
        # Deviation: the paper's published code (tensor2tensor at 3d9c62f2) forbids none.
        unused = (range(n_tokens, len(model.output_matrix)) for model in models)
        never = ([PAD_ID, BOS_ID, UNK_ID, *ids] for ids in unused)
        self._forbidden = [torch.tensor(ids, device=self._device) for ids in never]

    @classmethod
    def load(
        cls, bundles: Sequence[Bundle], device: torch.device, dtype: torch.dtype = torch.float32
    ) -> "TorchEngine":
        """Load the model of a bundle, or those of an ensemble, to compute in `dtype`."""
        models = [cast(accelerate(load_model(bundle, device)), dtype) for bundle in bundles]
        return cls(models, bundles[0].text.subword.n_tokens)

    def translate(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, progress: Advance
    ) -> list[list[Hypothesis]]:
        """Translate sentences, as `Engine` says. On a CPU, each core works on its own batch."""
        waiting = Waiting([len(ids) for ids in sources], decoding.beam_size, self._device)

        @torch.inference_mode()
        def search(numbers: list[int], stopping: Event) -> list[list[Hypothesis]]:
            tokens = [token for i in numbers for token in sources[i]]
            src = torch.tensor(tokens, device=self._device)
            layout = PackedLayout.of_lengths([len(sources[i]) for i in numbers]).to(self._device)
            decoders = [
                IncrementalDecoder(model, model.encode(src, layout), layout, never)
                for model, never in zip(self.models, self._forbidden, strict=True)
            ]
            return beam_search(_Ensemble(decoders, stopping), layout.lengths - 1, decoding, n_best)

        best: list[list[Hypothesis]] = [[]] * len(sources)
        with closing(searched(search, waiting)) as batches:
            for numbers, found in batches:
                for i, hypotheses in zip(numbers, found, strict=True):
                    if not hypotheses:
                        raise DivergedError(DIVERGED)
                    best[i] = hypotheses
                progress(len(numbers))
        return best

    def force(self, sources: Sentences, targets: Sentences, *, align: bool) -> list[Forced]:
        return force_ids(self.models, sources, targets, align=align)


class _Ensemble:
    """A `StepModel` of one or several models for the same sentences, until it is stopped."""

    def __init__(self, models: Sequence[StepModel], stopping: Event) -> None:
        self._models, self._stopping = models, stopping

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        if self._stopping.is_set():
            raise CancelledError
        parts = zip(*[model.step(tokens) for model in self._models], strict=True)
        return map(log_mean_probability, parts)

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        for model in self._models:
            model.reorder(sentences, beams)


def load_model(bundle: Bundle, device: torch.device) -> Transformer:
    weights = bundle.verified_weights()
    config = bundle.description.config
    if config.positions != "learned":
        config = config.model_copy(update={"max_positions": max_subwords(config)})
    with torch.device(device):
        model = Transformer(config, bundle.description.n_rows)
    load_weights(model, weights)
    return model
